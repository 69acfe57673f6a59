"""Where expressions with variables are compared: fixed pseudo-random points.

Two expressions that part only beyond x = 5, or only where a and b have different signs,
must be asked there. So beside a few points near zero, where most functions have values,
there are points in every gap between the constants of the two sides, up to thousands,
and each variable, and each pair of them, takes all its signs. And where a polynomial
stands below an absolute value, a root or the like, there are points between its roots.
"""

import functools
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from flint import fmpq, fmpq_poly

from ..parse.tree import (
    ZERO,
    Add,
    Big,
    Const,
    Fn,
    Mul,
    Node,
    Num,
    Pow,
    Sym,
    add,
    bits,
    children,
    is_integer,
    negative,
    symbols,
)

_MARKS = tuple(map(Fraction, ("0.1", "3", "100", "10000")))
_MAX_CONSTANTS = 12
_MAX_CONSTANT_BITS = 60
"""Longer ones are digits of something, and no place where anything bends."""
_MAX_ROUNDS = 16
_MAX_DEGREE = 12
_MAX_BENDS = 6
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True)
class Point:
    """A value for each variable.

    Attributes:
      seed: chooses among all values.
      low: the least size of a value.
      high: the greatest one.
      negative: the names whose values are below zero.
      whole: whether the values are integers.
      at: values that are given, by name.
    """

    seed: int
    low: Fraction
    high: Fraction
    negative: frozenset[str] = frozenset()
    whole: bool = False
    at: tuple[tuple[str, Fraction], ...] = ()


REAL = tuple(
    Point(seed, Fraction(low, 128), Fraction(high, 128))
    for seed, (low, high) in enumerate(
        ((15, 85), (-250, 250), (110, 290), (-90, -10), (20, 500))
    )
)
"""Near zero and of all signs: some of them lie where an arcsine or a logarithm has a
value."""
_VALUES = {"pi": fmpq(355, 113), "e": fmpq(193, 71)}  # near enough to part two roots
INTEGER = tuple(
    Point(seed, Fraction(1), Fraction(30), whole=True) for seed in range(5, 17)
)


@functools.lru_cache(maxsize=4096)
def coordinate(name: str, point: Point) -> Fraction:
    """The value of a variable at a point."""
    if (given := dict(point.at).get(name)) is not None:
        return given
    text = f"{point.seed} {name}".encode("utf-8", "replace")
    digest = hashlib.blake2b(text).digest()
    length = point.high - point.low
    if point.whole:
        return int(point.low) + 1 + Fraction((7 * point.seed + digest[0]) % int(length))
    share = Fraction(int.from_bytes(digest[:8], "big"), 2**64)
    size = point.low + share * length
    return -size if name in point.negative else size


def spread(left: Node, right: Node) -> Iterator[Point]:
    """Real points in every gap between the constants of two expressions.

    In each gap all variables are positive once, then some are negative, then the others
    are. Which ones changes from gap to gap, so that any two names have one sign here
    and different signs there: their places in the alphabet differ in some bit, and in
    the gap whose number is just that bit they part.
    """
    marks = sorted({*_MARKS, *_constants(left, right)})
    if marks[0] != _MARKS[0]:
        marks.insert(0, marks[0] / 10)
    if marks[-1] >= _MARKS[-1]:
        marks.append(marks[-1] * 10)
    gaps = list(zip(marks, marks[1:], strict=False))
    names = sorted(symbols(left) | symbols(right))
    seed = len(REAL) + len(INTEGER)
    for turn in range(max(len(gaps), min(len(names), _MAX_ROUNDS))):
        some = frozenset(
            name for n, name in enumerate(names) if (n & turn).bit_count() % 2
        )
        for below in {frozenset(): 0, some: 0, frozenset(names) - some: 0}:
            yield Point(seed, *gaps[turn % len(gaps)], below)
            seed += 1


def between_roots(left: Node, right: Node) -> Iterator[list[Point]]:
    """Real points on all sides of the roots at which a part of two expressions bends.

    One list for each part and each of its names: of several only this one moves.
    """
    bends: dict[Node, None] = {}
    for node in (left, right):
        bends |= dict.fromkeys(_bends(node))
    for bend in list(bends)[:_MAX_BENDS]:
        for name in sorted(symbols(bend))[:_MAX_NAMES]:
            polynomial = _polynomial(bend, name)
            if polynomial is not None and 0 < polynomial.degree() <= _MAX_DEGREE:
                marks = _marks_around(polynomial)
                middles = (
                    Fraction((a + b) / 2)
                    for a, b in zip(marks, marks[1:], strict=False)
                )
                yield [replace(REAL[2], at=((name, middle),)) for middle in middles]


def _marks_around(polynomial: fmpq_poly) -> list[float]:
    """Its real roots, nearly, and one more mark on either side."""
    roots = (root for root, _ in polynomial.complex_roots() if root.imag.contains(0))
    marks = sorted(filter(math.isfinite, (float(root.real) for root in roots)))
    return [marks[0] - 1, *marks, marks[-1] + 1] if marks else []


def _bends(node: Node) -> Iterator[Node]:
    """What changes its sign, or ceases to be defined, where an expression bends."""
    stack = [node]
    while stack:
        part = stack.pop()
        match part:
            case Fn("abs" | "sgn" | "log", (argument,)):
                yield argument
            case Fn("max" | "min", (first, *others)):
                yield from (add(first, negative(other)) for other in others)
            case Pow(base, Num() as exponent) if not is_integer(exponent):
                yield base
        stack.extend([part.body] if type(part) is Big else children(part))


def _polynomial(node: Node, name: str) -> fmpq_poly | None:
    """An expression as a polynomial in one name, with values for all others."""
    match node:
        case Num(value) if bits(value) <= _MAX_CONSTANT_BITS:
            return fmpq_poly([fmpq(value.numerator, value.denominator)])
        case Const(letter) if letter in _VALUES:
            return fmpq_poly([_VALUES[letter]])
        case Sym(letter):
            if letter == name:
                return fmpq_poly([0, 1])
            value = coordinate(letter, REAL[2])
            return fmpq_poly([fmpq(value.numerator, value.denominator)])
        case Add(parts) | Mul(parts):
            found = [_polynomial(part, name) for part in parts]
            if None in found:
                return None
            total = found[0]
            for part in found[1:]:
                total = total + part if type(node) is Add else total * part
                if total.degree() > _MAX_DEGREE:
                    return None
            return total
        case Pow(base, Num(exponent)) if exponent in range(1, _MAX_DEGREE + 1):
            inner = _polynomial(base, name)
            if inner is None or inner.degree() * exponent > _MAX_DEGREE:
                return None
            return inner ** int(exponent)
    return None


def spread_integers(left: Node, right: Node) -> Iterator[Point]:
    """Integer points beyond the constants; few, for a sum may have so many terms."""
    low, high = INTEGER[0].high / 2, 100
    beyond = [c for c in _constants(left, right) if low < c <= high]
    for seed, constant in enumerate(beyond[-2:], len(REAL)):
        yield Point(seed, constant, 2 * constant, whole=True)


def _constants(left: Node, right: Node) -> list[Fraction]:
    """The sizes of the numbers that stand in two expressions, in order."""
    found: set[Fraction] = set()
    stack = [left, right]
    while stack:
        part = stack.pop()
        if type(part) is Num and part.value and bits(part.value) <= _MAX_CONSTANT_BITS:
            found.add(abs(part.value))
        elif type(part) is Add:
            # 2x - 40 bends at 20.
            slopes = {t.factors[0].value for t in part.terms if _is_scaled(t)}
            shifts = {t.value for t in part.terms if type(t) is Num}
            found |= {abs(c / k) for c in shifts for k in slopes}
        # How many terms a sum has is no value of its variables.
        stack.extend([part.body] if type(part) is Big else children(part))
    # Of too many every second, or third; the greatest always, that it be passed.
    step = -(-len(found) // _MAX_CONSTANTS) or 1
    return sorted(found)[::-step][::-1]


def _is_scaled(term: Node) -> bool:
    first = term.factors[0] if type(term) is Mul else None
    return type(first) is Num and first != ZERO
