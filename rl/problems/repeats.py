"""Finds problems that occur more than once in a data set, or in two data sets."""

from collections.abc import Iterable, Sequence

from rl.types import Problem
from rl.verifier import is_equivalent


def describe_repeats(
    train: Sequence[Problem], held_out: Iterable[Problem]
) -> list[str]:
    """Describes duplicates, contradictions and the overlap with held-out problems.

    Two texts are equal if they differ in white space only. Two answers are equal if
    the verifier accepts them as equivalent.

    Args:
      train: training problems.
      held_out: held-out problems.

    Returns:
      A sentence for each kind of repeat that occurs.
    """
    earlier: dict[str, Problem] = {}
    held = {_text(problem) for problem in held_out}
    duplicates, contradictions, overlap = [], [], []
    for problem in train:
        text = _text(problem)
        if text in held:
            overlap.append(problem.id)
        first = earlier.setdefault(text, problem)
        if first is not problem:
            duplicates.append(problem.id)
            if not _agree(first.answers, problem.answers):
                contradictions.append(problem.id)
    kinds = (
        (duplicates, "repeat the text of an earlier problem"),
        (contradictions, "repeat the text of an earlier problem with another answer"),
        (overlap, "are also held-out problems, whose scores are then too high"),
    )
    return [
        f"{len(ids):,} training problems {text} (first {ids[0]!r})"
        for ids, text in kinds
        if ids
    ]


def _text(problem: Problem) -> str:
    return " ".join(problem.problem.split())


def _agree(first: Sequence[str], second: Sequence[str]) -> bool:
    """Returns whether an answer in `first` is equivalent to an answer in `second`."""
    if not set(first).isdisjoint(second):
        return True
    return any(is_equivalent(a, b) for a in first for b in second)
