"""Rows of two answers, compared in both directions."""

from collections.abc import Iterable

from rl.verifier import is_equivalent


def wrong(rows: Iterable[tuple[str, str]], *, equal: bool) -> list[tuple[str, str]]:
    """The rows on which the verifier says otherwise, in either direction."""
    return [
        (left, right)
        for left, right in rows
        if is_equivalent(left, right) is not equal
        or is_equivalent(right, left) is not equal
    ]
