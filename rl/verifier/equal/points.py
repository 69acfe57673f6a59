"""Chooses fixed pseudo-random points at which expressions with variables are compared.

Expressions may differ only for x > 5, or only if a and b have different signs, so the
points vary both. With at most 16 variables, each pair gets all combinations of signs.
"""

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ..parse import tree as t

_MARKS = tuple(map(Fraction, ("0.1", "3", "100", "10000")))
_MAX_CONSTANTS = 12
_MAX_CONSTANT_BITS = 60
"""Longer numbers are skipped, because expressions rarely change behaviour there."""
_MAX_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Point:
    """Represents a point; `coordinate` computes the value of each variable."""

    seed: int
    low: Fraction
    high: Fraction
    negative: frozenset[str] = frozenset()  # variables whose values are negated
    whole: bool = False  # all values are integers

    def __hash__(self) -> int:
        return self.seed  # fast; few points have the same seed


REAL = tuple(
    Point(seed, Fraction(low, 128), Fraction(high, 128))
    for seed, (low, high) in enumerate(
        ((15, 85), (-250, 250), (110, 290), (-90, -10), (20, 500))
    )
)
"""Points near zero with both signs; some lie in the domain of arcsine or logarithm."""
INTEGER = tuple(
    Point(seed, Fraction(1), Fraction(30), whole=True) for seed in range(5, 17)
)


@functools.lru_cache(maxsize=4096)
def coordinate(name: str, point: Point) -> Fraction:
    """Returns the value of a variable at a point."""
    text = f"{point.seed} {name}".encode("utf-8", "replace")
    digest = hashlib.blake2b(text).digest()
    length = point.high - point.low
    if point.whole:
        return int(point.low) + 1 + Fraction((7 * point.seed + digest[0]) % int(length))
    share = Fraction(int.from_bytes(digest[:8], "big"), 2**64)
    size = point.low + share * length
    return -size if name in point.negative else size


def spread(left: t.Node, right: t.Node) -> Iterator[Point]:
    """Yields real points of different sizes, with different signs of the variables.

    The sizes lie between constants of the expressions, or fixed numbers. In each round,
    all variables are positive, then a subset of them is negative, then the others are.
    In round n, the subset has the variables whose index shares an odd number of 1 bits
    with n.
    """
    marks = sorted({*_MARKS, *_constants(left, right)})
    if marks[0] != _MARKS[0]:
        marks.insert(0, marks[0] / 10)
    if marks[-1] >= _MARKS[-1]:
        marks.append(marks[-1] * 10)
    gaps = list(zip(marks, marks[1:], strict=False))
    names = sorted(left.names | right.names)
    seed = len(REAL) + len(INTEGER)
    for turn in range(max(len(gaps), min(len(names), _MAX_ROUNDS))):
        some = frozenset(
            name for n, name in enumerate(names) if (n & turn).bit_count() % 2
        )
        for below in {frozenset(): 0, some: 0, frozenset(names) - some: 0}:
            yield Point(seed, *gaps[turn % len(gaps)], below)
            seed += 1


def _constants(left: t.Node, right: t.Node) -> list[Fraction]:
    """Returns up to 12 |numbers| and |zeros| in both sides: 2, 20, 40 for 2x - 40."""
    found: set[Fraction] = set()
    stack = [left, right]
    while stack:
        part = stack.pop()
        if type(part) is t.Num:
            if part.value and t.bits(part.value) <= _MAX_CONSTANT_BITS:
                found.add(abs(part.value))
            continue
        if type(part) is t.Add:
            # |2x - 40| has a corner at 20.
            slopes = {term.factors[0].value for term in part.terms if _is_scaled(term)}
            shifts = {term.value for term in part.terms if type(term) is t.Num}
            found |= {abs(c / k) for c in shifts for k in slopes}
        stack.extend(t.children(part))
    # If there are too many, keep every nth, and always the greatest.
    step = -(-len(found) // _MAX_CONSTANTS) or 1
    return sorted(found)[::-step][::-1]


def _is_scaled(term: t.Node) -> bool:
    first = term.factors[0] if type(term) is t.Mul else None
    return type(first) is t.Num and first != t.ZERO
