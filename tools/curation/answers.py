"""The verifier's own filter: an answer must parse, and equal itself.

The question is put to the production path: a reply that boxes the answer is judged
against the answer by a `VerifierPool`, with its hard deadline, so that an answer that
would hang a training step is found here.
"""

from collections.abc import Callable, Iterable, Sequence

from rl.verifier import Verdict, VerifierPool, is_equivalent, self_check

JUDGE = f"{__name__}:judge"


def judge(golds: Sequence[str], problem: str | None) -> Callable[[str], Verdict]:
    """Judges answers in a worker of the pool.

    An answer that is put against itself must also pass the verifier's `self_check`; the
    reason then says what is wrong with it.
    """

    def one(answer: str) -> Verdict:
        fault = self_check(answer) if answer in golds else None
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
        found = {answer: self._faults[answer] for answer in answers}
        if len(self._faults) > _REMEMBERED:
            self._faults.clear()
        return found

    def equal(self, left: Sequence[str], right: Sequence[str]) -> bool:
        """Whether any answer of one problem equals any of the other."""
        if set(left) & set(right):
            return True
        verdicts = self._pool.judge([(_boxed(a), tuple(right), None) for a in left])
        return any(verdict.correct is True for verdict in verdicts)


_REMEMBERED = 200_000


def _boxed(answer: str) -> str:
    return "\\boxed{" + answer + "}"
