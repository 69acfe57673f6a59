"""Judging in parallel, with a hard deadline for each answer.

A verdict is bounded by steps, so that a deadline is a last resort; see `workers`.
"""

import collections
import threading
from collections.abc import Mapping, Sequence
from typing import Self, get_args

from rl.verifier.contract import Examiner, Rule, Verdict
from rl.verifier.extract import extract_answer
from rl.verifier.workers import Lost, Workers

Item = tuple[str, Sequence[str], str | None]
"""A completion, its accepted golds and the problem's text."""
_Group = tuple[tuple[str, ...], str | None]


class VerifierPool:
    """Parallel judging whose size and speed no input can wear down.

    Args:
      workers: items judged at the same time.
      timeout: seconds that one item may take before its worker is replaced.
      judge: "module:function" that the workers run, called with the accepted golds and
        the problem of a group; it returns a function from an answer to a `Verdict`.

    Raises:
      ValueError: for fewer than one worker or a timeout that is not positive.
    """

    def __init__(
        self,
        workers: int = 2,
        timeout: float = 5.0,
        *,
        judge: str = "rl.verifier.worker:examine",
    ):
        self._workers = Workers(workers, timeout, judge)
        self._counts = collections.Counter(
            dict.fromkeys(("judged", *get_args(Rule)), 0)
        )
        self._lock = threading.Lock()

    @property
    def workers(self) -> int:
        """Items judged at the same time."""
        return self._workers.workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    @property
    def counts(self) -> Mapping[str, int]:
        """Items so far: judged, and by each rule; and workers replaced."""
        with self._lock:
            return {"replaced": self._workers.replaced, **self._counts}

    @property
    def pids(self) -> list[int]:
        """Process ids of the living workers, spares included."""
        return self._workers.pids

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """Judges completions against their accepted golds; any match counts.

        Items with the same golds and problem are judged together: those are read once,
        and equal answers are compared once.

        Args:
          items: triples of a completion, its accepted golds and its problem's text.

        Returns:
          One verdict per item, in order.

        Raises:
          TypeError: where an item's golds are a bare string.
          RuntimeError: after close().
        """
        asked: list[tuple[_Group, str | None]] = []
        groups: dict[_Group, dict[str, None]] = {}
        for completion, golds, problem in items:
            if isinstance(golds, str):
                raise TypeError(
                    f"golds must be a sequence of strings, not {golds[:60]!r}"
                )
            asked.append(((tuple(golds), problem), extract_answer(completion)))
            group, answer = asked[-1]
            if answer is not None:
                groups.setdefault(group, {})[answer] = None
        answers = [list(unique) for unique in groups.values()]
        results = self._workers.map(list(zip(groups, answers, strict=True)))
        found = {
            group: {a: _verdict(a, result) for a, result in zip(*pair, strict=True)}
            for group, *pair in zip(groups, answers, results, strict=True)
        }
        verdicts = [
            _NO_ANSWER if answer is None else found[group][answer]
            for group, answer in asked
        ]
        with self._lock:
            self._counts["judged"] += len(verdicts)
            self._counts.update(verdict.rule for verdict in verdicts)
        return verdicts

    def close(self) -> None:
        """Ends all workers; a second call does nothing."""
        self._workers.close()


def _verdict(answer: str, result: Verdict | Lost) -> Verdict:
    if isinstance(result, Lost):
        return Verdict(None, answer, "lost", result.reason)
    return result


_NO_ANSWER = Examiner(()).judge(None)
