"""Ends a command on a signal or Ctrl-C, if possible with a checkpoint.

The effect depends on the phase in which the signal arrives:

    interruptible()   interrupts the main thread, which then saves a checkpoint
    grace_period()    lets the step end and be saved, within the grace period
    saving()          lets the save end, without a limit
    other code        interrupts the main thread

With several processes, the main thread is interrupted in calls of `check` only.
If the main thread does not end in time, the process is killed; the last checkpoint
stays. The limit is the grace period in `grace_period()`, and 1.5 seconds in other code
and after an interruption. `interruptible()` and `saving()` have no limit. A second
signal to the same process kills it at once.
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
from typing import Any, NoReturn, Self

# Exit statuses of the commands; see `status_of` for the status after a signal.
DONE = 0
ERROR = 1  # the last line explains the error
REFUSED = 2  # an error of `tools.evaluate` and other tools, or invalid arguments
UNHEALTHY = 3  # an alarm stopped the run, or its last updates were not finite

# Signals of schedulers, of Ctrl-C (SIGINT), and of a terminal that closes (SIGHUP).
STOPPING = (
    signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP,
)  # fmt: skip

PATIENCE_SECONDS = 1.5
_POLL_SECONDS = 0.1


def say(line: str) -> None:
    """Writes a line to stderr in one call, also if this process is being aborted."""
    # Not print: the main thread may hold its lock.
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


def status_of(number: int) -> int:
    """Returns the exit status after signal `number`, as a shell reports it."""
    return 128 + number


class Stopped(BaseException):
    """Ends the command after a signal; handlers of `Exception` do not catch it."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.signal = number


class SingleProcess:
    """Represents the only process of a run, so the methods do nothing.

    The subclasses in `rl.processes.group` do what the docstrings of the methods say.
    """

    alone = True
    leads = True  # whether this process runs the training loop and ends the run

    def watch_signals(self, on_signal: Callable[[int], None]) -> None:
        """In the leader, calls `on_signal` with the first signal that is reported."""

    def signal(self, number: int) -> None:
        """Reports to the leader a signal that this process received."""

    def abandon(self, status: int) -> None:
        """Ends all processes at once with this exit status."""

    def announce(self, name: str, *args: Any, **kwargs: Any) -> None:
        """In the leader, sends a command to all followers; see `rl.processes.joint`."""

    def end(self, status: int) -> None:
        """Ends the run when all processes are done, with this exit status."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind, error, trace) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Phase:
    interrupts: bool
    patience: float
    began: float = dataclasses.field(default_factory=time.monotonic)


class StopSignals:
    """Ends the command on a signal of `STOPPING`; see the module's docstring.

    Enter this context manager in the main thread. A signal to any process of a run ends
    all processes. The leader prints `message` if the command does not end in time.
    """

    def __init__(self, message: str):
        # Called before this process is killed, to wait for a save in progress.
        self.finish: Callable[[], None] = lambda: None
        self._message = message
        self._processes = SingleProcess()
        self._number: int | None = None
        self._arrived = math.inf  # time of the first signal to any process
        self._raised = False
        self._receiving = threading.Lock()
        self._phase = _Phase(interrupts=True, patience=PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._handlers = {
            number: signal.signal(number, self._handle)
            for number in STOPPING
            # nohup starts a command with SIGHUP ignored.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        }
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        os.close(self._writing)  # ends the thread

    def join(self, processes: SingleProcess) -> None:
        """Shares signals with the other processes of a run."""
        self._processes = processes
        processes.watch_signals(self.receive)
        if self._number is not None:
            processes.signal(self._number)

    def check(self) -> None:
        """Raises Stopped if a signal has arrived."""
        if self._number is not None:
            self._raised = True
            raise Stopped(self._number)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Lets a signal raise Stopped in the `with` block; the caller then saves.

        Stopped may also be raised while the block is left: catch it outside the block.
        """
        with self._during(_Phase(interrupts=True, patience=math.inf)):
            self.check()
            yield
            self.check()

    def grace_period(
        self, *, grace_seconds: float
    ) -> contextlib.AbstractContextManager[None]:
        """Lets work in the `with` block continue after a signal, for a limited time.

        The time counts from the latest of the signal, the start of the block and the
        end of a nested block.
        """
        return self._during(_Phase(interrupts=False, patience=grace_seconds))

    def saving(self) -> contextlib.AbstractContextManager[None]:
        """Lets work in the `with` block continue after a signal, without a limit."""
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
        # Runs when the main thread next executes Python code.
        self._number = self._number or number
        if self._processes.alone and self._phase.interrupts and not self._raised:
            self.check()

    def _watch(self) -> None:
        # In a thread, since the main thread may be in a long compilation.
        own = False
        while True:
            if select.select([self._reading], [], [], _POLL_SECONDS)[0]:
                if not (read := os.read(self._reading, 1)):
                    os.close(self._reading)
                    return
                # A scheduler signals every process: a second signal counts only if this
                # process received the first one itself.
                if own:
                    os._exit(status_of(read[0]))
                own = True
                self.receive(read[0])
            phase = self._phase
            late = time.monotonic() > max(self._arrived, phase.began) + phase.patience
            if late and self._processes.leads:
                self._abandon()

    def receive(self, number: int) -> None:
        """Begins to stop because this or another process received a signal."""
        with self._receiving:
            if self._arrived < math.inf:
                return
            self._number = self._number or number
            self._arrived = time.monotonic()
            name = signal.Signals(number).name
            say(f"{name}: stopping; a second signal ends the process at once")
        self._processes.signal(number)

    def _abandon(self) -> NoReturn:
        assert self._number is not None
        self.finish()
        say(self._message)
        self._processes.abandon(status_of(self._number))
        os._exit(status_of(self._number))


def run(message: str, command: Callable[[StopSignals], int]) -> int:
    """Runs a command and returns its exit status; on Stopped, ends the process.

    If the command raises Stopped or does not end in time, prints `message` at the end.
    """
    with StopSignals(message) as stop:
        try:
            return command(stop)
        except Stopped as stopped:
            sys.stdout.flush()
            sys.stderr.flush()
            stop.receive(stopped.signal)  # the thread may not have printed its line yet
            say(message)
            # Everything is closed; waiting threads would delay a normal exit.
            os._exit(status_of(stopped.signal))
