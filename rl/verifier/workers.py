"""Work in processes that can be cut off, with a hard deadline for each item.

For what may hang or die: a machine that stands still, a function of the user's, a fault
of ours. A worker that misses a deadline, or dies, is killed and replaced by one that
was started ahead, and the item is tried once more; lost twice, it has no result. No
signal handler and no timer is used, so it works from any thread, and from asyncio
through `asyncio.to_thread(workers.map, requests)`.
"""

import collections
import concurrent.futures
import dataclasses
import queue
import signal
import threading
from collections.abc import Sequence
from typing import Any, Self

from rl.verifier.child import START_SECONDS, Child

_TRIES = 2
_MOST_STARTS = 10

Request = tuple[tuple, Sequence[Any]]
"""The context of some items, and the items."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """In the place of a result: its worker was stopped or died, more than once."""

    reason: str


class Workers:
    """Processes whose number and speed no item can wear down.

    Args:
      workers: items worked on at the same time.
      timeout: seconds that one item may take before its worker is replaced.
      function: "module:function" that the workers run: called with the context of a
        request, it returns what makes a result of an item.
      preload: modules imported while a worker starts: no item's deadline includes that.
      confined: whether a worker may have a gigabyte of address space and nothing of
        the environment but what an interpreter needs; a user's own function may use
        what the user may.

    Raises:
      ValueError: for fewer than one worker or a timeout that is not positive.
    """

    def __init__(
        self,
        workers: int,
        timeout: float,
        function: str,
        *,
        preload: Sequence[str] = (),
        confined: bool = True,
    ):
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive seconds, not {timeout}")
        self.workers = workers
        self.timeout = timeout
        self._child = function, tuple(preload), confined
        self._replaced = 0
        self._lock = threading.Lock()
        self._closed = False
        # Spares hide the start of a replacement behind the next item's work.
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        # A child is told to die with the thread that started it (see `worker`): one
        # thread starts them all, and ends with the pool.
        self._starter = concurrent.futures.ThreadPoolExecutor(
            1, "workers-start", initializer=_block_signals
        )
        self._alive = {self._start() for _ in range(2 * workers)}
        try:
            for worker in self._alive:
                if not worker.await_ready():
                    raise TimeoutError(
                        f"a worker of {function} did not start in {START_SECONDS:.0f} s"
                    )
                self._idle.put(worker)
        except BaseException:
            self.close()
            raise
        self._threads = concurrent.futures.ThreadPoolExecutor(
            workers, thread_name_prefix="workers"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    @property
    def replaced(self) -> int:
        """Workers replaced so far."""
        with self._lock:
            return self._replaced

    @property
    def pids(self) -> list[int]:
        """Process ids of the living workers, spares included."""
        with self._lock:
            return sorted(worker.pid for worker in self._alive)

    def map(self, requests: Sequence[Request], on_done=None) -> list[list[Any]]:
        """Has all items worked on; those of one request by one worker, in order.

        Args:
          requests: pairs of a context and its items.
          on_done: called with a number of items whenever so many more are done.

        Returns:
          The results of each request, in order; `Lost` where there is none.

        Raises:
          RuntimeError: after close().
        """
        if self._closed:
            raise RuntimeError("the workers are closed")
        futures = [
            self._threads.submit(self._work, context, list(items))
            for context, items in requests
        ]
        results = []
        for future in futures:
            results.append(future.result())
            if on_done is not None:
                on_done(len(results[-1]))
        return results

    def close(self) -> None:
        """Ends all workers; a second call does nothing."""
        self._closed = True
        if hasattr(self, "_threads"):
            self._threads.shutdown(cancel_futures=True)
        with self._lock:
            alive, self._alive = self._alive, set()
        for worker in alive:
            worker.kill()
        self._starter.shutdown()

    def _work(self, context: tuple, items: list[Any]) -> list[Any]:
        results: list[Any] = []
        tries: collections.Counter[int] = collections.Counter()
        worker = self._idle.get()
        try:
            while len(results) < len(items):
                waiting = items[len(results) :]
                worker = self._asked(worker, context, waiting)
                try:
                    for _ in waiting:
                        results.append(worker.receive(self.timeout))
                except (TimeoutError, EOFError, OSError) as error:
                    # Stopped, killed from outside, or killed by this very item: tried
                    # once more, by a fresh worker.
                    suspect = len(results)
                    tries[suspect] += 1
                    if tries[suspect] >= _TRIES:
                        late = isinstance(error, TimeoutError)
                        reason = "took too long" if late else "ended its worker"
                        results.append(Lost(reason))
                    worker = self._replace(worker)
        finally:
            self._idle.put(worker)
        return results

    def _asked(self, worker: Child, context: tuple, items: list[Any]) -> Child:
        """A worker that has the question: this one, or one that is alive."""
        for _ in range(_MOST_STARTS):
            try:
                worker.await_ready()
                worker.send(context, tuple(items))
                return worker
            except (EOFError, OSError):
                worker = self._replace(worker)
        self._idle.put(worker)
        raise RuntimeError(f"{_MOST_STARTS} workers in a row did not start")

    def _start(self) -> Child:
        return self._starter.submit(Child, *self._child).result()

    def _replace(self, worker: Child) -> Child:
        """A spare that runs already; a new one is started in the place of the lost."""
        worker.kill()
        fresh = self._start()
        with self._lock:
            self._replaced += 1
            self._alive.discard(worker)
            self._alive.add(fresh)
        self._idle.put(fresh)
        return self._idle.get()


def _block_signals() -> None:
    """A child inherits what its thread blocks: signals are for the parent to see."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
