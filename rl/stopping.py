"""How a signal ends a run: at the next place from which it can be resumed."""

import signal

from rl import peers


class Stopped(Exception):
    """A signal asked the run to end; `signal` is its number."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.signal = number


class StopSignals:
    """SIGTERM and Ctrl-C end the run where it can be resumed; a second one at once.

    One to any process of the run will do.
    """

    def __init__(self, processes: peers.Peers):
        self._processes = processes
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number, _frame):
        signal.signal(number, signal.SIG_DFL)
        self._processes.signal(number)
        print(f"{signal.Signals(number).name}: saving, then stopping", flush=True)

    def check(self) -> None:
        """Raises Stopped once a signal has come."""
        if self._processes.signalled is not None:
            raise Stopped(self._processes.signalled)
