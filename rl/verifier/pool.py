"""Judges completions in worker processes, with a deadline for each completion.

The deadline guards against faults and slow reward functions of users. A worker that
dies or misses the deadline is replaced, and its completion is retried once.
"""

import collections
import concurrent.futures
import contextlib
import functools
import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from .grade.contract import UNEVALUATED, Examiner, Rule, Verdict
from .parse.extract import extract_boxes
from .worker import Worker

_TRIES = 2
# Values of `Lost.reason`.
LATE, ENDED = "took too long", "ended its worker"


class Lost(NamedTuple):
    """Represents the result of an item whose worker died or timed out in every try."""

    reason: str


class Workers(contextlib.AbstractContextManager):
    """Runs a function in worker processes and replaces workers that hang or die.

    Args:
      workers: number of worker processes.
      timeout: seconds that one try of an item may take before its worker is replaced.
      function: "module:function". It is called with the entries of a request's context,
        and returns a function that computes the result of one item.
      preload: modules that a worker imports when it starts; failures are ignored.
      confined: limits workers to 1 GiB of memory and basic environment variables.
    """

    def __init__(
        self, workers: int, timeout: float, function: str, *,
        preload: Sequence[str] = (), confined: bool = True,
    ):  # fmt: skip
        if workers < 1:
            raise ValueError(f"workers={workers}: must be at least 1")
        if not timeout > 0:
            raise ValueError(f"timeout={timeout}: must be a positive number of seconds")
        self.workers, self.timeout, self.replaced = workers, timeout, 0
        self._start = functools.partial(Worker, function, tuple(preload), confined)
        self._threads = concurrent.futures.ThreadPoolExecutor(workers, "workers")
        self._by_place = [self._start() for _ in range(workers)]
        self._idle: queue.SimpleQueue[int] = queue.SimpleQueue()
        try:
            for place, worker in enumerate(self._by_place):
                worker.wait_until_ready()
                self._idle.put(place)
        except BaseException as error:
            self.close()
            if isinstance(error, EOFError):
                what = "the worker ended at its start; see its error above"
                raise RuntimeError(f"{function}: {what}") from None
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; each worker leads its own process group."""
        return sorted(worker.pid for worker in self._by_place)

    def map(
        self,
        requests: Sequence[tuple[tuple, Sequence[Any]]],
        on_done: Callable[[int], object] = lambda items: None,
    ) -> list[list[Any]]:
        """Returns one list of results per request, in order; failed items give `Lost`.

        Args:
          requests: pairs of a context and items. The items of a pair run in sequence.
          on_done: function called after each request with the number of its items.

        Raises:
          RuntimeError: if the workers are closed.
        """
        if not self._by_place:
            raise RuntimeError("the worker pool is closed; create a new one")
        results = []
        for of_request in self._threads.map(lambda r: self._work(*r), requests):
            results.append(of_request)
            on_done(len(of_request))
        return results

    def close(self) -> None:
        """Cancels waiting requests, waits for running ones, then ends all workers."""
        self._threads.shutdown(cancel_futures=True)
        while self._by_place:
            self._by_place.pop().kill()

    def _work(self, context: tuple, items: Sequence[Any]) -> list[Any]:
        place = self._idle.get()
        try:
            return [self._result(place, context, item) for item in items]
        finally:
            self._idle.put(place)

    def _result(self, place: int, context: tuple, item: Any) -> Any:
        reason = ""
        for _ in range(_TRIES):
            worker = self._by_place[place]
            try:
                return worker.ask(context, item, self.timeout)
            except (EOFError, OSError) as error:
                reason = LATE if isinstance(error, TimeoutError) else ENDED
                worker.kill()
                self._by_place[place] = self._start()
                self.replaced += 1
        return Lost(reason)


def examine(
    golds: Sequence[str], problem: str | None, literal: bool = True
) -> Callable[[Any], Verdict]:
    """Returns a function that maps an answer to its verdict; see `Examiner`."""
    return functools.cache(Examiner(golds, problem, literal=literal).judge)


class VerifierPool(Workers):
    """Judges completions in parallel.

    Args:
      workers, timeout: as in `Workers`.
      judge: "module:function" that replaces `examine`. It returns a function from an
        answer, or a tuple of the answers in neighbouring boxes, to a verdict.
      after, literal: as in `contract.judge`.
    """

    def __init__(
        self, workers: int = 2, timeout: float = 5.0, *,
        judge: str = "", after: str | None = None, literal: bool = True,
    ):  # fmt: skip
        super().__init__(workers, timeout, judge or f"{__name__}:examine")
        self._after, self._options = after or None, () if literal else (False,)
        names = ("judged", "unevaluated", *get_args(Rule))
        self._counts = collections.Counter(dict.fromkeys(names, 0))

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of completions (all, by rule, unevaluated) and of replaced workers."""
        return {"replaced": self.replaced, **self._counts}

    def judge(
        self, items: Sequence[tuple[str, Sequence[str], str | None]]
    ) -> list[Verdict]:
        """Returns one verdict for each (completion, golds, problem or None), in order.

        Raises:
          TypeError: if golds are one string instead of a sequence of strings.
          RuntimeError: if the pool is closed.
        """
        verdicts = [Examiner(()).judge(None)] * len(items)
        asked = collections.defaultdict[tuple, list[tuple[int, Any]]](list)
        for index, (completion, golds, problem) in enumerate(items):
            if isinstance(golds, str):
                what = "must be a sequence of strings, not a string"
                raise TypeError(f"golds={golds[:60]!r}: {what}")
            if boxes := extract_boxes(completion, after=self._after):
                answer = boxes if len(boxes) > 1 else boxes[0]
                asked[(tuple(golds), problem, *self._options)].append((index, answer))
        found = self.map([(c, [a for _, a in pairs]) for c, pairs in asked.items()])
        for pairs, results in zip(asked.values(), found, strict=True):
            for (index, answer), result in zip(pairs, results, strict=True):
                if isinstance(result, Lost):
                    box = answer if isinstance(answer, str) else answer[-1]
                    result = Verdict(None, box, "lost", result.reason)
                verdicts[index] = result
        self._counts.update(verdict.rule for verdict in verdicts)
        self._counts["judged"] += len(verdicts)
        self._counts["unevaluated"] += sum(v.reason == UNEVALUATED for v in verdicts)
        return verdicts
