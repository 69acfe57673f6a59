"""How a signal ends a command: saved where it is at rest, else within two seconds.

SIGTERM and Ctrl-C are read by a thread of their own, since the main one may be deep in
a compilation. What is going on when one comes decides:

    at rest      the main thread is interrupted, and what it has is saved
    under way    a step may end, and be saved, within `checkpoint.grace_seconds`
    being saved  is waited for
    all else     is interrupted

What has not ended by itself in time is abandoned: the process ends as under `kill -9`,
and the last good state stays. A second signal ends it at once.
"""

import contextlib
import dataclasses
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol, Self

from configs.schema import NotNegative

# How a command of ours ends; after a signal by `status_of`, 130 or 143.
DONE = 0
ERROR = 1  # said in the last line
REFUSED = 2  # as 1, of `evaluate` and the like; a wrong command line of argparse
UNHEALTHY = 3  # an alarm stopped the run, or its policy is not to be trusted

PATIENCE_SECONDS = 1.5
_TOLD = 0x80  # marks a signal that another process has told of


def in_a_line(error: BaseException) -> str:
    """What an error of any library says, as one line."""
    return " ".join(str(error).split()) or repr(error)


def status_of(number: int) -> int:
    """The exit status after a signal, as a shell gives it to what a signal kills."""
    return 128 + number


class Stopped(BaseException):
    """A signal asked the command to end; `signal` is its number.

    Like `KeyboardInterrupt` no `Exception`: who handles errors of users' code lets it
    pass.
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.signal = number


class Processes(Protocol):
    """The other processes of a run, as `rl.hosts.peers` has them.

    Attributes:
      alone: there are none; only then may the main thread be interrupted anywhere.
      leads: whether this process decides when the run ends.
      on_signal: is called with the number of a signal that another process received.
    """

    alone: bool
    leads: bool
    on_signal: Callable[[int], None]

    def signal(self, number: int) -> None:
        """Tells the leader of a signal that this process received."""

    def abandon(self, status: int) -> None:
        """Ends the others with this status."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Phase:
    interrupts: bool
    patience: float
    began: float = dataclasses.field(default_factory=time.monotonic)


class StopSignals:
    """SIGTERM and Ctrl-C end the command as the module's docstring says.

    One to any process of a run will do.

    Attributes:
      finish: called before an abandoned process ends; waits for what is being saved.
    """

    def __init__(self, message: str):
        """Is entered in the main thread.

        Args:
          message: the line in which an abandoned process ends.
        """
        self.finish: Callable[[], None] = lambda: None
        self._message = message
        self._processes: Processes | None = None
        self._number: int | None = None
        self._raised = False
        self._phase = _Phase(interrupts=True, patience=PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._handlers = {
            number: signal.signal(number, self._handle)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        os.close(self._writing)  # which ends the thread

    def join(self, processes: Processes) -> None:
        """From now on a signal is one to all of these."""
        self._processes = processes
        processes.on_signal = self._ask
        if self._number is not None:
            processes.signal(self._number)

    def check(self) -> None:
        """Raises Stopped once a signal has come."""
        if self._number is not None:
            self._raised = True
            raise Stopped(self._number)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """What is interrupted here can be saved: raises Stopped in the main thread.

        With several processes `check` does, which is to be called now and then, and is
        at the end: what comes next may be cut short. It may be raised where `with` is
        left: catch it around that, in the same function.
        """
        with self._during(_Phase(interrupts=True, patience=math.inf)):
            self.check()
            yield
            self.check()

    @contextlib.contextmanager
    def under_way(self, *, grace_seconds: NotNegative) -> Iterator[None]:
        """What is cut short here is lost: a signal waits for `check`, for so long."""
        with self._during(_Phase(interrupts=False, patience=grace_seconds)):
            yield

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """What is done here is waited for."""
        with self._during(_Phase(interrupts=False, patience=math.inf)):
            yield

    @contextlib.contextmanager
    def _during(self, phase: _Phase) -> Iterator[None]:
        before, self._phase = self._phase, phase
        try:
            yield
        finally:
            if self._raised:  # what is left is to close what is open
                before = _Phase(interrupts=False, patience=PATIENCE_SECONDS)
            self._phase = dataclasses.replace(before, began=time.monotonic())

    def _handle(self, number: int, _frame) -> None:
        """In the main thread, as soon as that runs Python again."""
        self._number = self._number or number
        if self._processes and not self._processes.alone:
            return
        if self._phase.interrupts and not self._raised:
            self.check()

    def _ask(self, number: int) -> None:
        """Another process of the run has received a signal."""
        with contextlib.suppress(OSError):
            os.write(self._writing, bytes([_TOLD | number]))

    def _watch(self) -> None:
        came, own = 0.0, False
        while True:
            if select.select([self._reading], [], [], 0.1 if came else None)[0]:
                read = os.read(self._reading, 1)
                if not read:
                    os.close(self._reading)
                    return
                number, told = read[0] & ~_TOLD, bool(read[0] & _TOLD)
                if not came:
                    came = time.monotonic()
                    self._begin(number)
                elif own and not told:
                    os._exit(status_of(number))
                # A scheduler's signal comes to every process: told of or not, once.
                own |= not told
            phase = self._phase
            deadline = max(came, phase.began) + phase.patience
            follows = self._processes and not self._processes.leads
            if time.monotonic() > deadline and not follows:
                self._abandon()

    def _begin(self, number: int) -> None:
        self._number = self._number or number
        self._say(f"{signal.Signals(number).name}: stopping; a second one ends at once")
        if self._processes:
            self._processes.signal(number)

    def _abandon(self) -> NoReturn:
        self.finish()
        self._say(self._message)
        if self._processes:
            self._processes.abandon(status_of(self._number))
        os._exit(status_of(self._number))

    def _say(self, line: str) -> None:
        # Not by print: the main thread may hold that, and where Python does not buffer,
        # another's line may come between a line and its end.
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode())


def run(message: str, command: Callable[[StopSignals], int]) -> int:
    """Runs a command; after a signal this process ends here, with `message`.

    Args:
      message: how the command goes on.
      command: its exit status.
    """
    with StopSignals(message) as stop:
        try:
            return command(stop)
        except Stopped as stopped:
            sys.stdout.flush()
            sys.stderr.flush()
            stop._say(message)
            # What is closed is closed: no thread that still waits is waited for.
            os._exit(status_of(stopped.signal))


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Processes that are started in here leave SIGTERM and Ctrl-C to their parent."""
    both = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, both)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
