"""Decides with the verifier which answers can be golds and which are equal.

A gold parses and equals itself, read from a box as in training.
"""

from collections.abc import Callable, Sequence

from rl.verifier import extract_answer, is_equivalent, self_check
from rl.verifier.pool import Workers
from tools.curation.row import Row


def unverifiable_answer(row: Row) -> str | None:
    """Finds golds that the verifier cannot parse or that do not equal themselves.

    Looks only at rows without a reason so far.
    """
    for gold in row.answers if row.survives else ():
        answer = extract_answer(f"\\boxed{{{gold}}}")
        said: str | None
        if answer is None or "\\boxed" in answer:
            said = "has no box, an empty one, or several"
        elif not (said := self_check(answer)):
            said = None if is_equivalent(answer, gold) else "does not equal itself"
        if said:
            return f"{gold[:80]}: {said}"
    return None


def equality(golds: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that compares an answer with the golds; runs in a worker."""
    return lambda answer: any(is_equivalent(answer, gold) for gold in golds)


class AnswerJudge(Workers):
    """Compares answers in worker processes, with a time limit for each comparison."""

    def __init__(self, workers: int, timeout: float):
        super().__init__(workers, timeout, f"{__name__}:equality")

    def equal(self, left: Sequence[str], right: Sequence[str]) -> bool:
        """Returns whether any answer of one problem equals any of the other."""
        return not set(left).isdisjoint(right) or self.equal_pairs([(left, right)])[0]

    def equal_pairs(
        self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
    ) -> list[bool]:
        """Applies `equal` to each pair, in one call of the workers."""
        found = self.map([((right,), left) for left, right in pairs])
        return [True in verdicts for verdicts in found]
