"""How a signal ends a command: with a checkpoint where possible, else in two seconds.

SIGTERM and Ctrl-C are read by a thread of their own, since the main one may be deep in
a compilation. The phase in which one arrives decides:

    interruptible()   the main thread is interrupted, and what it has is saved
    grace_period()    the step may end, and be saved, within `checkpoint.grace_seconds`
    saving()          is waited for
    everything else   is interrupted

What has not ended by itself in time is abandoned: the process ends as under `kill -9`,
and the last good checkpoint stays. A second signal ends it at once.
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
from typing import NoReturn, Self

# Exit statuses of the commands; after a signal see `status_of`.
DONE = 0
ERROR = 1  # explained by the last line
REFUSED = 2  # as 1, of `evaluate` and the like; a wrong command line of argparse
UNHEALTHY = 3  # an alarm stopped the run, or its policy is not to be trusted

PATIENCE_SECONDS = 1.5
_FROM_OTHER = 0x80  # marks a signal that another process received


def one_line(error: BaseException) -> str:
    """Returns an error's message as one line."""
    return " ".join(str(error).split()) or repr(error)


def status_of(number: int) -> int:
    """Returns the exit status after a signal, as a shell reports it."""
    return 128 + number


class Stopped(BaseException):
    """A signal asked the command to end; `signal` is its number.

    Like `KeyboardInterrupt` it is not an `Exception`: handlers of errors in users' code
    let it pass.
    """

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.signal = number


class SingleProcess:
    """A run of one process; `rl.processes.group` has those of several.

    Attributes:
      alone: there are no other processes.
      leads: this process runs the loop and decides when the run ends.
    """

    alone, leads = True, True

    def watch_signals(self, on_signal: Callable[[int], None]) -> None:
        """Call `on_signal` with the first signal that any other process received."""

    def signal(self, number: int) -> None:
        """Report a signal that this process received to the leader."""

    def abandon(self, status: int) -> None:
        """End all processes at once with this exit status."""

    def end(self, status: int) -> None:
        """End the run in order, with this exit status."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind, error, trace) -> None:
        """Release nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Phase:
    interrupts: bool
    patience: float
    began: float = dataclasses.field(default_factory=time.monotonic)


class StopSignals:
    """Ends the command on SIGTERM and Ctrl-C, as the module's docstring says.

    A signal to any process of a run stops all of them.

    Attributes:
      finish: called before an abandoned process ends; waits for a save in progress.
    """

    def __init__(self, message: str):
        """Must be entered in the main thread.

        Args:
          message: last line of an abandoned process.
        """
        self.finish: Callable[[], None] = lambda: None
        self._message = message
        self._processes = SingleProcess()
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

    def join(self, processes: SingleProcess) -> None:
        """Makes a signal to any of these processes one to all."""
        self._processes = processes
        processes.watch_signals(self._receive)
        if self._number is not None:
            processes.signal(self._number)

    def check(self) -> None:
        """Raises Stopped once a signal has arrived."""
        if self._number is not None:
            self._raised = True
            raise Stopped(self._number)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raises Stopped in the main thread: interrupted work is saved by the caller.

        With several processes `check` raises it instead: call that now and then. It is
        also called at the end, since the step that follows may be cut short. Stopped
        may be raised where `with` is left: catch it around that, in the same function.
        """
        with self._during(_Phase(interrupts=True, patience=math.inf)):
            self.check()
            yield
            self.check()

    def grace_period(
        self, *, grace_seconds: float
    ) -> contextlib.AbstractContextManager[None]:
        """Lets work that would be lost run on until `check`, for a limited time."""
        return self._during(_Phase(interrupts=False, patience=grace_seconds))

    def saving(self) -> contextlib.AbstractContextManager[None]:
        """Lets work run to its end."""
        return self._during(_Phase(interrupts=False, patience=math.inf))

    @contextlib.contextmanager
    def _during(self, phase: _Phase) -> Iterator[None]:
        before, self._phase = self._phase, phase
        try:
            yield
        finally:
            if self._raised:  # only closing remains
                before = _Phase(interrupts=False, patience=PATIENCE_SECONDS)
            self._phase = dataclasses.replace(before, began=time.monotonic())

    def _handle(self, number: int, _frame) -> None:
        """Runs in the main thread, as soon as that executes Python again."""
        self._number = self._number or number
        if self._processes.alone and self._phase.interrupts and not self._raised:
            self.check()

    def _receive(self, number: int) -> None:
        """Hands a signal that another process received to the watching thread."""
        with contextlib.suppress(OSError):
            os.write(self._writing, bytes([_FROM_OTHER | number]))

    def _watch(self) -> None:
        arrived, own = 0.0, False
        while True:
            if select.select([self._reading], [], [], 0.1 if arrived else None)[0]:
                read = os.read(self._reading, 1)
                if not read:
                    os.close(self._reading)
                    return
                number, other = read[0] & ~_FROM_OTHER, bool(read[0] & _FROM_OTHER)
                if not arrived:
                    arrived = time.monotonic()
                    self._begin(number)
                elif own and not other:
                    os._exit(status_of(number))
                # A scheduler signals every process: another's copy does not count.
                own |= not other
            phase = self._phase
            deadline = max(arrived, phase.began) + phase.patience
            if time.monotonic() > deadline and self._processes.leads:
                self._abandon(number)

    def _begin(self, number: int) -> None:
        self._number = self._number or number
        self._say(f"{signal.Signals(number).name}: stopping; a second one ends at once")
        self._processes.signal(number)

    def _abandon(self, number: int) -> NoReturn:
        self.finish()
        self._say(self._message)
        self._processes.abandon(status_of(number))
        os._exit(status_of(number))

    def _say(self, line: str) -> None:
        # Not by print: the main thread may hold its lock, and without Python's buffer
        # another thread's line may come between a line and its end.
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode())


def run(message: str, command: Callable[[StopSignals], int]) -> int:
    """Runs a command; ends this process here, with `message`, after a signal.

    Args:
      message: last line after a signal: how to resume.
      command: returns the exit status.
    """
    with StopSignals(message) as stop:
        try:
            return command(stop)
        except Stopped as stopped:
            sys.stdout.flush()
            sys.stderr.flush()
            stop._say(message)
            # Everything is closed; threads that still wait would delay the end.
            os._exit(status_of(stopped.signal))


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Starts child processes that leave SIGTERM and Ctrl-C to their parent."""
    both = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, both)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
