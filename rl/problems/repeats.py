"""Count problems that occur more than once in a data set, or in two data sets."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from rl.types import Problem
from rl.verifier import is_equivalent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Ids of problems that occur more than once, in the order of their data set.

    Attributes:
      duplicates: problems of the training set whose text an earlier one has.
      contradictions: duplicates whose answers all differ from the earlier one's.
      overlap: problems of the training set whose text a held-out problem has.
    """

    duplicates: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    overlap: tuple[str, ...] = ()

    def messages(self) -> list[str]:
        """Return a sentence for each kind of repeat that occurs."""
        kinds = (
            (self.duplicates, "repeat the text of an earlier problem"),
            (self.contradictions, "repeat a text with another answer"),
            (self.overlap, "are held-out problems too: their scores mean little"),
        )
        return [
            f"{len(ids):,} training problems {text} (first {ids[0]!r})"
            for ids, text in kinds
            if ids
        ]


def count_repeats(train: Sequence[Problem], held_out: Iterable[Problem]) -> Repeats:
    """Find duplicates, contradictions, and training problems that are held out too.

    Texts are equal if they differ at most in white space. Answers are equal if the
    verifier says so.

    The start page prints `messages()`; `len(count_repeats(...).overlap)` and the like
    are the counts.
    """
    earlier: dict[str, Problem] = {}
    found: dict[str, list[str]] = collections.defaultdict(list)
    held = {_text(problem) for problem in held_out}
    for problem in train:
        text = _text(problem)
        if text in held:
            found["overlap"].append(problem.id)
        first = earlier.setdefault(text, problem)
        if first is not problem:
            found["duplicates"].append(problem.id)
            if not _agree(first.answers, problem.answers):
                found["contradictions"].append(problem.id)
    return Repeats(**{name: tuple(ids) for name, ids in found.items()})


def _text(problem: Problem) -> str:
    return " ".join(problem.problem.split())


def _agree(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether an answer of one problem is equal to one of the other."""
    if not set(first).isdisjoint(second):
        return True
    return any(is_equivalent(a, b) for a in first for b in second)
