"""Rows of answers, compared in both directions."""

from collections.abc import Iterable, Sequence

from rl.verifier import is_equivalent

# An answer, answers that equal it, and answers that do not.
Row = tuple[str, Sequence[str], Sequence[str]]


def labelled(rows: Iterable[Row]) -> list[tuple[str, str, bool]]:
    """Returns the pairs of each row, and whether they are equal."""
    return [
        (answer, one, equal)
        for answer, same, other in rows
        for equal, answers in ((True, same), (False, other))
        for one in answers
    ]


def misjudged(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Returns the pairs that the verifier judges otherwise, in either direction."""

    def right(a: str, b: str, equal: bool) -> bool:
        return is_equivalent(a, b) is is_equivalent(b, a) is equal

    return [(a, b) for a, b, equal in labelled(rows) if not right(a, b, equal)]
