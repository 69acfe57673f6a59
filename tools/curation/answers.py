"""Checks gold answers with the verifier, and compares answers for equality."""

from collections.abc import Callable, Sequence

from rl.verifier import extract_answer, is_equivalent, self_check
from rl.verifier.pool import Workers
from tools.curation.row import Row


def unverifiable_answer(row: Row) -> str | None:
    """Finds golds that the verifier cannot parse, or judges unequal to themselves."""
    # Slow, so rows that another check drops are skipped.
    for gold in row.answers if row.survives else ():
        answer = extract_answer(f"\\boxed{{{gold}}}")
        fault: str | None
        if answer is None or "\\boxed" in answer:
            fault = "is empty, has an unclosed brace, or contains a box"
        elif not (fault := self_check(answer)):
            fault = None if is_equivalent(answer, gold) else "does not equal itself"
        if fault:
            return f"{gold[:80]}: {fault}"
    return None


def equality(golds: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that tests whether an answer equals one of `golds`."""
    return lambda answer: any(is_equivalent(answer, gold) for gold in golds)


class AnswerJudge(Workers):
    """Compares answers in worker processes; a crash or timeout counts as unequal."""

    def __init__(self, workers: int, timeout: float):
        super().__init__(workers, timeout, f"{__name__}:equality")

    def equal(self, left: Sequence[str], right: Sequence[str]) -> bool:
        """Returns whether an answer in `left` equals an answer in `right`."""
        return not set(left).isdisjoint(right) or self.equal_pairs([(left, right)])[0]

    def equal_pairs(
        self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
    ) -> list[bool]:
        """Returns the result of `equal` for each pair, computed in parallel."""
        found = self.map([((right,), left) for left, right in pairs])
        return [True in verdicts for verdicts in found]
