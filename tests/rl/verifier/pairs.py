"""Rows of answers, compared in both directions."""

from collections.abc import Iterable, Iterator, Sequence

from rl.verifier import is_equivalent

# An answer, answers that equal it, and answers that do not.
Row = tuple[str, Sequence[str], Sequence[str]]


def labelled(rows: Iterable[Row]) -> Iterator[tuple[str, str, bool]]:
    """Yields the pairs of each row, and whether they are equal."""
    for answer, same, other in rows:
        yield from ((answer, one, True) for one in same)
        yield from ((answer, one, False) for one in other)


def misjudged(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Returns the pairs that the verifier judges otherwise, in either direction."""
    return [
        (left, right)
        for left, right, equal in labelled(rows)
        if is_equivalent(left, right) is not equal
        or is_equivalent(right, left) is not equal
    ]


def wrong(pairs: Iterable[tuple[str, str]], *, equal: bool) -> list[tuple[str, str]]:
    """Returns the pairs that the verifier judges otherwise, in either direction."""
    rows = [(a, [b], []) if equal else (a, [], [b]) for a, b in pairs]
    return misjudged(rows)
