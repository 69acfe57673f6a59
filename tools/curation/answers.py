"""The verifier's own filter: an answer parses, equals itself, and others can equal it.

The question is put to the production path: a reply that boxes the answer is judged
against the answer by a `VerifierPool`, with its hard deadline, so that an answer that
would hang a training step is found here.
"""

from collections.abc import Callable, Sequence

from rl.verifier import Verdict, VerifierPool, is_equivalent, self_check
from rl.verifier.answers import parse_answer
from rl.verifier.nodes import INFINITY, Big, Rel, walk


def judge(golds: Sequence[str], problem: str | None) -> Callable[[str], Verdict]:
    """Judges answers in a worker of the pool.

    An answer that is put against itself must also pass the verifier's `self_check`, and
    hold nothing that only its own text equals; the reason then says what is wrong.
    """

    def one(answer: str) -> Verdict:
        fault = self_check(answer) or _endless(answer) if answer in golds else None
        if fault is None and any(is_equivalent(answer, gold) for gold in golds):
            return Verdict(True, answer, "algebra")
        return Verdict(False, answer, "open", fault or "does not equal itself")

    return one


def _endless(answer: str) -> str | None:
    """An infinite sum, an improper integral or a limit, which are never worked out."""
    node = parse_answer(answer).node
    if isinstance(node, Rel):  # to a value, which alone is accepted too
        node = node.right
    for part in walk(node) if node is not None else ():
        if isinstance(part, Big):
            bounds = (*walk(part.lower), *walk(part.upper))
            if part.kind == "lim" or INFINITY in bounds:
                return "a limit, or a sum, product or integral without end"
    return None


class AnswerJudge(VerifierPool):
    """Faults of golds, and equality of two answers.

    Args:
      workers: processes.
      timeout: seconds that one answer may take.
    """

    def __init__(self, workers: int, timeout: float):
        super().__init__(workers, timeout, judge=f"{__name__}:judge")

    def faults(self, golds: Sequence[str]) -> list[str | None]:
        """For each answer why it cannot serve as a gold, or None where it can."""
        verdicts = self.judge([(_boxed(gold), (gold,), None) for gold in golds])
        return [
            None if verdict.correct else f"{gold[:80]}: {verdict.reason}"
            for gold, verdict in zip(golds, verdicts, strict=True)
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
        verdicts = self.judge([(_boxed(a), right, None) for _, a, right in asked])
        for (i, _, _), verdict in zip(asked, verdicts, strict=True):
            found[i] |= verdict.correct is True
        return found


def _boxed(answer: str) -> str:
    return "\\boxed{" + answer + "}"
