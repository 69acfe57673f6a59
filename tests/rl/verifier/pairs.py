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
    return [
        (left, right)
        for left, right, equal in labelled(rows)
        if is_equivalent(left, right) is not equal
        or is_equivalent(right, left) is not equal
    ]
