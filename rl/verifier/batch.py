"""Judges many completions at once, in worker processes."""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from .equal.equivalence import self_check
from .grade.contract import UNEVALUATED, Examiner, Rule, Verdict
from .parse.extract import extract_boxes
from .pool import Lost, Workers


def examine(
    golds: Sequence[str], problem: str | None, literal: bool = True
) -> Callable[[Any], Verdict]:
    """Returns a function from an answer to its verdict; reads the golds once."""
    return functools.cache(Examiner(golds, problem, literal=literal).judge)


def read_golds() -> Callable[[str], str | None]:
    """Returns a function that says why an answer cannot be a gold, or None."""
    return self_check


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
        self._options = () if literal else (False,)
        super().__init__(workers, timeout, judge or f"{__name__}:examine")
        names = ("judged", "unevaluated", *get_args(Rule))
        self._counts = collections.Counter(dict.fromkeys(names, 0))

    @property
    def counts(self) -> Mapping[str, int]:
        """Items judged so far, in all and by rule; and workers replaced."""
        return {"replaced": self.replaced, **self._counts}

    def judge(
        self, items: Sequence[tuple[str, Sequence[str], str | None]]
    ) -> list[Verdict]:
        """Returns the verdicts on triples of completion, accepted golds and problem."""
        contexts: list[tuple | None] = []
        requests = collections.defaultdict[tuple, list[Any]](list)
        for completion, golds, problem in items:
            if isinstance(golds, str):
                raise TypeError(
                    f"golds must be a sequence of strings, not {golds[:60]!r}"
                )
            context = (tuple(golds), problem, *self._options)
            boxes = extract_boxes(completion, after=self._after)
            contexts.append(context if boxes else None)
            if boxes:
                requests[context].append(boxes[0] if len(boxes) == 1 else boxes)
        found = self.map(list(requests.items()))
        queues = {
            context: map(_verdict, answers, results)
            for (context, answers), results in zip(requests.items(), found, strict=True)
        }
        nothing = Examiner(()).judge(None)
        verdicts = [next(queues[c]) if c is not None else nothing for c in contexts]
        self._counts.update(verdict.rule for verdict in verdicts)
        self._counts["judged"] += len(verdicts)
        self._counts["unevaluated"] += sum(v.reason == UNEVALUATED for v in verdicts)
        return verdicts


def _verdict(answer: str | tuple[str, ...], result: Verdict | Lost) -> Verdict:
    if not isinstance(result, Lost):
        return result
    last = answer if isinstance(answer, str) else answer[-1]
    return Verdict(None, last, "lost", result.reason)
