"""Judges many completions at once in worker processes."""

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
    """Returns a function that maps an answer to its verdict; see `Examiner`."""
    return functools.cache(Examiner(golds, problem, literal=literal).judge)


def read_golds() -> Callable[[str], str | None]:
    """Returns `self_check`, which explains why an answer cannot be a gold."""
    return self_check


class VerifierPool(Workers):
    """Judges completions in parallel.

    Args:
      workers: number of worker processes.
      timeout: seconds allowed for one completion.
      judge: "module:function" that replaces `examine`. It returns a function from an
        answer to a verdict; a list of neighbouring boxes is passed as one tuple.
      after: delimiter such as `</think>`; only text after its last occurrence counts.
      literal: whether to reject answers with arithmetic left to do; see `Examiner`.
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
        """Counts of judged completions (total and by rule) and of replaced workers."""
        return {"replaced": self.replaced, **self._counts}

    def judge(
        self, items: Sequence[tuple[str, Sequence[str], str | None]]
    ) -> list[Verdict]:
        """Returns the verdicts of completions, in order.

        Args:
          items: triples of a completion, its accepted golds, and the problem's text or
            None.

        Raises:
          TypeError: if golds are one string instead of a sequence of strings.
        """
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
