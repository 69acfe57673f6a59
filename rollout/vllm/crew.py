"""Threads that wait for servers' answers, kept from call to call.

To start a thread is to wait until it runs. On cores that a server keeps busy, 256
starts took eleven seconds where the sampling itself took one.
"""

import queue
import threading
from collections.abc import Callable


class Crew:
    """Runs jobs side by side; grows to the most that were ever asked for at once."""

    def __init__(self):
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._size = self._free = 0

    def run(self, job: Callable[[], None], times: int) -> None:
        """Calls `job`, which may not raise, in as many threads at once."""
        with self._lock:
            new = max(0, times - self._free)
            self._size += new
            self._free += new - times
        for _ in range(new):
            threading.Thread(target=self._serve, daemon=True).start()
        for _ in range(times):
            self._jobs.put(job)

    def close(self) -> None:
        """Lets each thread go once it is free."""
        for _ in range(self._size):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._free += 1
