"""Answers, to the verifier: one that can serve as a gold, and two that are equal.

A gold parses, equals itself, and others can equal it, read from a box as in training.
"""

import re
from collections.abc import Callable, Sequence

from rl.verifier import extract_answer, is_equivalent, self_check
from rl.verifier.parse.answers import parse_answer
from rl.verifier.parse.tree import INFINITY, Big, Rel, Sym, Word, walk
from rl.verifier.pool import Workers
from tools.curation.repair import answer_of_solution, bare_answer
from tools.curation.row import Row

_BETWEEN = re.compile(r"=|\\\w*arrow|\\implies")  # the sides of a box


def unverifiable_answer(row: Row) -> str | None:
    """The verifier cannot parse it, or it does not equal itself.

    Nor may it hold what only its own text equals. Asked of rows that survive so far.
    """
    for gold in row.answers if row.survives else ():
        answer = extract_answer(f"\\boxed{{{gold}}}")
        if answer is None or "\\boxed" in answer:
            said = "has no box, an empty one, or several"
        elif not (said := self_check(answer) or _endless(answer)):
            said = None if is_equivalent(answer, gold) else "does not equal itself"
        if said:
            return f"{gold[:80]}: {said}"
    return None


def against_solution(row: Row) -> str | None:
    """Its own worked solution, where it has one box, ends at another value."""
    counts = row.survives and len(re.findall(r"\\f?box", row.solution)) < 2
    said = bare_answer(counts and answer_of_solution(row.solution) or "")
    if isinstance(parse_answer(said).node, Sym | Word | None):
        return None
    agrees = any(map(equality([said, *_BETWEEN.split(said)]), row.answers))
    return None if agrees else f"{row.answer[:60]}: the solution says {said[:60]}"


def _endless(answer: str) -> str | None:
    """An infinite sum or product, which is never worked out."""
    node = parse_answer(answer).node
    # What it is said to be equal to is accepted alone too.
    for part in walk(node.right if isinstance(node, Rel) else node):
        if isinstance(part, Big):
            if INFINITY in (*walk(part.lower), *walk(part.upper)):
                return "a sum or a product without end"
    return None


def equality(golds: Sequence[str]) -> Callable[[str], bool]:
    """Tells, in a worker, of an answer whether it equals any of the golds."""
    return lambda answer: any(is_equivalent(answer, gold) for gold in golds)


class AnswerJudge(Workers):
    """Equality of answers, on none of which more than `timeout` seconds are spent."""

    def __init__(self, workers: int, timeout: float):
        super().__init__(workers, timeout, f"{__name__}:equality")

    def equal(self, left: Sequence[str], right: Sequence[str]) -> bool:
        """Whether any answer of one problem equals any of the other."""
        return not set(left).isdisjoint(right) or self.equal_pairs([(left, right)])[0]

    def equal_pairs(
        self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
    ) -> list[bool]:
        """`equal` of each pair, in one call of the workers."""
        found = self.map([((right,), left) for left, right in pairs])
        return [True in verdicts for verdicts in found]
