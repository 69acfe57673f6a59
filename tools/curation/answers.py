"""The verifier's own filter: an answer parses, equals itself, and fits its problem.

The question is put to the production path: a reply that boxes the answer is judged
against the answer by a `VerifierPool`, with its hard deadline, so that an answer that
would hang a training step is found here.
"""

from collections.abc import Callable, Sequence

from rl.verifier import Verdict, VerifierPool, is_equivalent, self_check
from tools.curation.stated import refuted

# No gold is equal to both, unless it is equal to anything.
_OTHERS = (r"\sqrt{7919}", "(104729, -17)")
JUDGE = f"{__name__}:judge"


def judge(golds: Sequence[str], problem: str | None) -> Callable[[str], Verdict]:
    """Judges answers in a worker of the pool.

    An answer that is put against itself must also pass the verifier's `self_check`, and
    hold where its problem says so; the reason then says what is wrong with it.
    """

    def one(answer: str) -> Verdict:
        if answer in golds:
            fault = self_check(answer)
            if fault is None and all(is_equivalent(other, answer) for other in _OTHERS):
                fault = "equals an unrelated answer"
            if fault is not None:
                return Verdict(False, answer, "unreadable", fault)
            if problem is not None and (claim := refuted(problem, answer)) is not None:
                return Verdict(False, answer, "different", claim)
        equal = any(is_equivalent(answer, gold) for gold in golds)
        rule = "algebra" if equal else "open"
        return Verdict(equal, answer, rule, "" if equal else "does not equal itself")

    return one


class AnswerJudge:
    """Faults of golds, and equality of two answers.

    Args:
      workers: processes.
      timeout: seconds that one answer may take.
    """

    def __init__(self, workers: int, timeout: float):
        self._pool = VerifierPool(workers, timeout, judge=JUDGE)

    def __enter__(self) -> "AnswerJudge":
        return self

    def __exit__(self, *exception) -> None:
        self._pool.close()

    def faults(self, golds: Sequence[tuple[str, str]]) -> list[tuple[str, str] | None]:
        """For each answer and its problem's text (reason, evidence), or None."""
        verdicts = self._pool.judge([(_boxed(a), (a,), text) for a, text in golds])
        return [
            None
            if verdict.correct
            else ("gold_refuted", f"{answer[:40]}: not so in {verdict.reason[:80]}")
            if verdict.rule == "different"
            else ("unverifiable_answer", f"{answer[:80]}: {verdict.reason}")
            for (answer, _), verdict in zip(golds, verdicts, strict=True)
        ]

    def equal(self, left: Sequence[str], right: Sequence[str]) -> bool:
        """Whether any answer of one problem equals any of the other."""
        return self.equal_pairs([(left, right)])[0]

    def equal_pairs(
        self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
    ) -> list[bool]:
        """`equal` of each pair, in one call of the pool."""
        found = [bool(set(left) & set(right)) for left, right in pairs]
        asked = [
            (i, answer, tuple(right))
            for i, (left, right) in enumerate(pairs)
            if not found[i]
            for answer in left
        ]
        verdicts = self._pool.judge([(_boxed(a), right, None) for _, a, right in asked])
        for (i, _, _), verdict in zip(asked, verdicts, strict=True):
            found[i] |= verdict.correct is True
        return found


def _boxed(answer: str) -> str:
    return "\\boxed{" + answer + "}"
