"""Runs functions in worker processes, with a deadline for each item.

The step budget already bounds the verifier itself. The deadline guards against faults
and against reward functions written by users. A worker that dies or misses the deadline
is replaced, and its item is retried once. Workers are fresh interpreters without signal
handlers or timers, so any thread may use a pool.
"""

import concurrent.futures
import contextlib
import importlib
import multiprocessing.connection
import os
import pathlib
import queue
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_START_SECONDS = 120.0
_TRIES = 2
_MEMORY_BYTES = 1 << 30
# Environment variables that confined workers inherit; API keys and tokens are not.
_NEEDS = ("PATH", "HOME", "LANG", "LC_", "TMPDIR", "LD_LIBRARY_PATH", "PYTHON")
_ROOT = str(pathlib.Path(__file__).resolve().parents[__name__.count(".")])


class Lost(NamedTuple):
    """Represents the result of an item whose worker died or timed out in every try."""

    reason: str


class _Worker:
    """Runs a worker process and exchanges messages with it over a pipe."""

    def __init__(self, function: str, preload: Sequence[str], confined: bool):
        self._pipe, theirs = multiprocessing.Pipe()
        names = (n for n in os.environ if not confined or n.startswith(_NEEDS))
        # A user's function may import JAX; the accelerators belong to the trainer.
        env = {n: os.environ[n] for n in names} | {"JAX_PLATFORMS": "cpu"}
        env["PYTHONPATH"] = os.pathsep.join([_ROOT, env.get("PYTHONPATH", "")])
        fd = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve({fd})"],
                env=env, pass_fds=[fd], stdin=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        self.pid, self._started = self._process.pid, False
        with contextlib.suppress(OSError):  # a worker that died is detected later
            self._pipe.send((sys.path, function, preload, confined))

    def wait_for_start(self) -> None:
        """Waits for the worker, so that no item's deadline includes its start."""
        if not self._started:
            self._started = self._receive(_START_SECONDS)

    def ask(self, context: tuple, item: Any, timeout: float) -> Any:
        self.wait_for_start()
        self._pipe.send((context, item))
        return self._receive(timeout)

    def _receive(self, timeout: float) -> Any:
        if not self._pipe.poll(timeout):
            raise TimeoutError("a worker does not answer")
        return self._pipe.recv()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()
        self._pipe.close()


class Workers(contextlib.AbstractContextManager):
    """Runs a function in worker processes and replaces workers that hang or die.

    Args:
      workers: number of worker processes.
      timeout: seconds that one item may take before its worker is replaced.
      function: "module:function" that maps the context of a request to a function from
        an item to its result.
      preload: modules that a worker imports when it starts.
      confined: whether workers get at most 1 GiB of address space and only basic
        environment variables.
    """

    def __init__(
        self, workers: int, timeout: float, function: str, *,
        preload: Sequence[str] = (), confined: bool = True,
    ):  # fmt: skip
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive seconds, not {timeout}")
        self.workers, self.timeout, self.replaced = workers, timeout, 0
        self._spec = function, tuple(preload), confined
        self._threads = concurrent.futures.ThreadPoolExecutor(workers, "workers")
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._alive: set[_Worker] = set()
        try:
            for worker in [self._start() for _ in range(workers)]:
                worker.wait_for_start()
                self._idle.put(worker)
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers, each leading its own process group."""
        return sorted(worker.pid for worker in list(self._alive))

    def map(
        self,
        requests: Sequence[tuple[tuple, Sequence[Any]]],
        on_done: Callable[[int], object] = lambda items: None,
    ) -> list[list[Any]]:
        """Returns the results of all requests, in order.

        One worker runs all items of a request.

        Args:
          requests: pairs of a context and its items.
          on_done: function called after each request with the number of its items.

        Raises:
          RuntimeError: if the workers are closed.
        """
        if not self._alive:
            raise RuntimeError("the workers are closed")
        results = []
        for of_request in self._threads.map(lambda r: self._work(*r), requests):
            results.append(of_request)
            on_done(len(of_request))
        return results

    def close(self) -> None:
        """Ends all workers; a second call does nothing."""
        self._threads.shutdown(cancel_futures=True)
        while self._alive:
            self._alive.pop().kill()

    def _start(self) -> _Worker:
        worker = _Worker(*self._spec)
        self._alive.add(worker)
        return worker

    def _work(self, context: tuple, items: Sequence[Any]) -> list[Any]:
        worker, results = self._idle.get(), []
        try:
            for item in items:
                result: Any = None
                for _ in range(_TRIES):
                    try:
                        result = worker.ask(context, item, self.timeout)
                        break
                    except (EOFError, OSError) as error:
                        late = isinstance(error, TimeoutError)
                        result = Lost("took too long" if late else "ended its worker")
                        worker.kill()
                        old, worker = worker, self._start()
                        self._alive.discard(old)
                        self.replaced += 1
                results.append(result)
        finally:
            self._idle.put(worker)
        return results


def serve(fd: int) -> None:
    """Answers requests from the pipe `fd` until the parent exits; runs in a worker."""
    # Only the parent handles signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    if os.fork():
        # This process only waits for the end of its stdin, when the parent exits.
        # It then kills its process group, including the processes of a user's function.
        os.close(fd)
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    pipe = multiprocessing.connection.Connection(fd)
    sys.path[:], function, preload, confined = pipe.recv()
    if confined:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for name in preload:
        with contextlib.suppress(BaseException):  # the error recurs at its use
            importlib.import_module(name)
    module, name = function.split(":")
    make_work = getattr(importlib.import_module(module), name)
    pipe.send(True)
    known, work = None, None
    with contextlib.suppress(EOFError):
        while True:
            context, item = pipe.recv()
            if work is None or context != known:
                known, work = context, make_work(*context)
            pipe.send(work(item))
