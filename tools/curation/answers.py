"""The verifier's own filter: an answer must parse, and equal itself.

The question is put to the production path: a reply that boxes the answer is judged
against the answer by a `VerifierPool`, with its hard deadline, so that an answer that
would hang a training step is found here.
"""

from collections.abc import Callable, Iterable, Sequence

from rl.verifier import Verdict, VerifierPool, is_equivalent, self_check

# No gold is equal to both, unless it is equal to anything.
_OTHERS = (r"\sqrt{7919}", "(104729, -17)")
JUDGE = f"{__name__}:judge"


def judge(golds: Sequence[str], problem: str | None) -> Callable[[str], Verdict]:
    """Judges answers in a worker of the pool.

    An answer that is put against itself must also pass the verifier's `self_check`; the
    reason then says what is wrong with it.
    """

    def one(answer: str) -> Verdict:
        fault = None
        if answer in golds:
            fault = self_check(answer)
            if fault is None and all(is_equivalent(other, answer) for other in _OTHERS):
                fault = "equals an unrelated answer"
        if fault is not None:
            return Verdict(False, answer, "unreadable", fault)
        equal = any(is_equivalent(answer, gold) for gold in golds)
        rule = "algebra" if equal else "different"
        return Verdict(equal, answer, rule, "" if equal else "does not equal itself")

    return one


class AnswerJudge:
    """Faults of answers, and equality of two, remembered for the run.

    Args:
      workers: processes.
      timeout: seconds that one answer may take.
    """

    def __init__(self, workers: int, timeout: float):
        self._pool = VerifierPool(workers, timeout, judge=JUDGE)
        self._faults: dict[str, str | None] = {}

    def __enter__(self) -> "AnswerJudge":
        return self

    def __exit__(self, *exception) -> None:
        self._pool.close()

    def faults(self, answers: Iterable[str]) -> dict[str, str | None]:
        """For each answer, why it cannot serve as a gold, or None where it can."""
        answers = list(dict.fromkeys(answers))
        new = [answer for answer in answers if answer not in self._faults]
        verdicts = self._pool.judge([(_boxed(a), (a,), None) for a in new])
        for answer, verdict in zip(new, verdicts, strict=True):
            self._faults[answer] = None if verdict.correct else verdict.reason
        return {answer: self._faults[answer] for answer in answers}

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
