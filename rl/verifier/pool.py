"""Judges in worker processes, with a hard deadline for each item.

The budget already bounds a verdict, so the deadline only guards against faults and
users' reward functions. A worker that misses it or dies is replaced and its item tried
once more. Workers are fresh interpreters; no signal handler and no timer is used, so a
pool may be called from any thread.
"""

import collections
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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, get_args

from .equal.equivalence import self_check
from .grade.contract import UNEVALUATED, Examiner, Rule, Verdict
from .parse.extract import extract_boxes

_START_SECONDS = 120.0
_TRIES = 2
_MEMORY_BYTES = 1 << 30
# What an interpreter needs of the environment, which has no key and no token.
_NEEDS = ("PATH", "HOME", "LANG", "LC_", "TMPDIR", "LD_LIBRARY_PATH", "PYTHON")
_ROOT = str(pathlib.Path(__file__).resolve().parents[__name__.count(".")])
_SERVE = f"import sys; from {__name__} import serve; serve(int(sys.argv[1]))"


class Lost(NamedTuple):
    """Replaces a result: the worker was stopped or died, more than once."""

    reason: str


def examine(
    golds: Sequence[str], problem: str | None, literal: bool = True
) -> Callable[[str], Verdict]:
    """Returns a function from an answer to its verdict; reads the golds once."""
    return Examiner(golds, problem, literal=literal).judge


def read_golds() -> Callable[[str], str | None]:
    """Returns a function that says why an answer cannot be a gold, or None."""
    return self_check


class _Worker:
    def __init__(self, function: str, preload: Sequence[str], confined: bool):
        self._pipe, theirs = multiprocessing.Pipe()
        env = dict(os.environ)
        if confined:
            env = {name: env[name] for name in env if name.startswith(_NEEDS)}
        # A user's function may use JAX; the accelerators are the trainer's.
        paths = filter(None, [_ROOT, env.get("PYTHONPATH")])
        env |= {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(fd)],
            env=env, pass_fds=[fd], stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self.pid, self._started = self._process.pid, False
        with contextlib.suppress(OSError):  # one that died at once is noticed later
            self._pipe.send((sys.path, function, preload, confined))

    def send(self, context: tuple, items: Sequence[Any]) -> None:
        if not self._started:  # no item's deadline includes the start
            self.receive(_START_SECONDS)
            self._started = True
        if items:
            self._pipe.send((context, items))

    def receive(self, timeout: float) -> Any:
        if not self._pipe.poll(timeout):
            raise TimeoutError("a worker does not answer")
        return self._pipe.recv()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()
        self._pipe.close()


class Workers:
    """Runs a function in processes whose number and speed no item can reduce.

    Args:
      workers: how many items run at the same time.
      timeout: seconds that one item may take before its worker is replaced.
      function: "module:function"; called with a request's context, it returns a
        function from an item to its result.
      preload: modules that a worker imports at its start.
      confined: give workers a gigabyte of memory and a bare environment at most.
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
        self._closed = False
        try:
            for worker in [self._start() for _ in range(workers)]:
                worker.send((), ())
                self._idle.put(worker)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Ids of the living workers, each the leader of a process group."""
        return sorted(worker.pid for worker in list(self._alive))

    def map(
        self,
        requests: Sequence[tuple[tuple, Sequence[Any]]],
        on_done: Callable[[int], object] = lambda items: None,
    ) -> list[list[Any]]:
        """Returns the results of requests, pairs of a context and its items, in order.

        One worker does all of a request; `on_done` gets the number of its items.
        """
        if self._closed:
            raise RuntimeError("the workers are closed")
        futures = [self._threads.submit(self._work, *request) for request in requests]
        results = []
        for future in futures:
            results.append(future.result())
            on_done(len(results[-1]))
        return results

    def close(self) -> None:
        """Ends all workers; a second call does nothing."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)
        while self._alive:
            self._alive.pop().kill()

    def _start(self) -> _Worker:
        worker = _Worker(*self._spec)
        self._alive.add(worker)
        return worker

    def _work(self, context: tuple, items: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        worker, tries = self._idle.get(), 0
        try:
            while (done := len(results)) < len(items):
                try:
                    worker.send(context, items[done:])
                    while len(results) < len(items):
                        results.append(worker.receive(self.timeout))
                except (EOFError, OSError) as error:
                    self._alive.discard(worker)
                    worker.kill()
                    worker = self._start()
                    self.replaced += 1
                    tries = tries + 1 if len(results) == done else 1
                    if tries == _TRIES:
                        late = isinstance(error, TimeoutError)
                        how = "took too long" if late else "ended its worker"
                        results.append(Lost(how))
                        tries = 0
        finally:
            self._idle.put(worker)
        return results


class VerifierPool(Workers):
    """Judges completions in parallel.

    `judge` names another judge than `examine`, called with an answer or with a tuple of
    neighbouring boxes. `after` and `literal` are those of `contract.judge`.
    """

    def __init__(
        self,
        workers: int = 2,
        timeout: float = 5.0,
        *,
        judge: str = "",
        after: str | None = None,
        literal: bool = True,
    ):
        self._after = after or None
        self._context = () if literal else (False,)
        super().__init__(workers, timeout, judge or f"{__name__}:examine")
        self._counts = collections.Counter(
            {r: 0 for r in ("judged", "unevaluated", *get_args(Rule))}
        )

    @property
    def counts(self) -> Mapping[str, int]:
        """Items judged so far, in all and by rule; and workers replaced."""
        return {"replaced": self.replaced, **self._counts}

    def judge(
        self, items: Sequence[tuple[str, Sequence[str], str | None]]
    ) -> list[Verdict]:
        """Returns the verdicts on triples of completion, accepted golds and problem."""
        keys = []
        groups = collections.defaultdict[Any, dict[Any, None]](dict)
        for completion, golds, problem in items:
            if isinstance(golds, str):
                raise TypeError(
                    f"golds must be a sequence of strings, not {golds[:60]!r}"
                )
            boxes = extract_boxes(completion, after=self._after)
            answer = boxes[0] if len(boxes) == 1 else boxes or None
            keys.append(((tuple(golds), problem), answer))
            if answer is not None:
                groups[(tuple(golds), problem)][answer] = None
        results = self.map([(g + self._context, list(t)) for g, t in groups.items()])
        found: dict[Any, Verdict] = {}
        for (group, texts), of_group in zip(groups.items(), results, strict=True):
            for text, result in zip(texts, of_group, strict=True):
                if isinstance(result, Lost):
                    last = text if isinstance(text, str) else text[-1]
                    result = Verdict(None, last, "lost", result.reason)
                found[group, text] = result
        nothing = Examiner(()).judge(None)
        verdicts = [found.get(key, nothing) for key in keys]
        self._counts.update(verdict.rule for verdict in verdicts)
        self._counts["judged"] += len(verdicts)
        self._counts["unevaluated"] += sum(v.reason == UNEVALUATED for v in verdicts)
        return verdicts


def serve(descriptor: int) -> None:
    """Answers requests on a pipe, in a worker, until the parent is gone."""
    # Signals are for the parent to see.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    if os.fork():
        # This process only waits: its input ends with the parent, and then it ends the
        # group, with whatever hangs in C or was started by a user's function.
        os.close(descriptor)
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    pipe = multiprocessing.connection.Connection(descriptor)
    sys.path[:], function, preload, confined = pipe.recv()
    if confined:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for name in preload:
        with contextlib.suppress(BaseException):  # named where it is used
            importlib.import_module(name)
    module, name = function.split(":")
    make_work = getattr(importlib.import_module(module), name)
    pipe.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            context, items = pipe.recv()
            work = make_work(*context)
            for item in items:
                pipe.send(work(item))
