"""Decides whether expressions are equal, by exact numbers or interval arithmetic."""

import dataclasses
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from ..parse import tree as t
from ..parse.budget import Budget
from .intervals import Balls
from .points import REAL, coordinate
from .polynomials import proportion

Way = Literal["text", "number", "enclosure"]
"""Names how answers were shown equal: words, exact numbers or interval arithmetic."""

PRINTED_DIGITS = 14
"""A decimal of at least this many digits equals the exact numbers that round to it."""
_STEPS_OF_A_POINT = 100


@dataclasses.dataclass
class Prover:
    """Shows that expressions are equal, and records how."""

    budget: Budget = dataclasses.field(default_factory=Budget)
    percents: bool = True  # a missing percent sign is accepted
    points: bool = False  # pairs are never intervals
    ratios: bool = False  # 2:40 equals 1:20
    times: bool = False  # 2:40 differs from 2/40, because it is a time
    percents_only: bool = False  # 5 equals only 5%, and not 500%
    named: frozenset[str] | None = None  # names in the problem; None if unknown
    way: Way = "number"  # "enclosure" if intervals or rounding were needed so far
    is_open: bool = False  # some comparison could not be decided

    def __post_init__(self) -> None:
        self.charge = self.budget.charge
        self.balls = Balls(self.budget)

    def equal(self, left: t.Node, right: t.Node) -> bool:
        """Returns whether folded expressions are shown equal; may raise `Open`."""
        self.charge(1)
        if left == right:
            return True
        if type(left) is t.Num and type(right) is t.Num:
            return left.value == right.value or self._rounds(left, right)
        if _is_infinite(left) or _is_infinite(right):
            return False
        agreed = self.balls.agree(left, right)
        if agreed:
            return self._shown()
        if agreed is None:
            self.is_open = True
        return self._rounds(left, right)

    def sign(self, left: t.Node, right: t.Node) -> int | None:
        """Returns the sign of left - right for real constants, or None if unknown."""
        if left == right:
            return 0
        ranks = [(n == t.INFINITY) - (n == t.MINUS_INFINITY) for n in (left, right)]
        if any(ranks):
            return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])
        if t.contains(left, t.Sym) or t.contains(right, t.Sym):
            return None
        if type(left) is t.Num and type(right) is t.Num:
            return (left.value > right.value) - (left.value < right.value)
        sign = self.balls.sign(left, right)
        if sign is None:
            self.is_open = True
        return sign

    def proportional(
        self, left: t.Node, right: t.Node, *, positive: bool = False
    ) -> bool:
        """Returns whether one expression is a nonzero constant times the other.

        `positive` requires a constant above 0.
        """
        if left != right:
            self.charge(_STEPS_OF_A_POINT)
            if (factor := proportion(left, right, self.budget)) is not None:
                return (factor > 0 or not positive and factor < 0) and self._shown()
        for point in REAL:
            at: dict[t.Node, t.Node] = {
                t.Sym(name): t.Num(coordinate(name, point))
                for name in left.names | right.names
            }
            self.charge(_STEPS_OF_A_POINT)
            a, b = t.substitute(left, at), t.substitute(right, at)
            signs = self.sign(a, t.ZERO), self.sign(b, t.ZERO)
            if None in signs or signs == (0, 0):
                continue
            if 0 in signs or (positive and signs[0] != signs[1]):
                return False
            return self.equal(t.mul(left, b), t.mul(right, a))
        return False

    def _shown(self) -> bool:
        self.way = "enclosure"
        return True

    def _rounds(self, left: t.Node, right: t.Node) -> bool:
        return any(
            self._prints(decimal, exact)
            for decimal, exact in ((left, right), (right, left))
            if type(decimal) is t.Num and decimal.ulp is not None
        )

    def _prints(self, decimal: t.Num, exact: t.Node) -> bool:
        """Returns whether a long decimal is `exact` rounded, or printed as a float."""
        value = self._other(decimal, exact, PRINTED_DIGITS)
        if value is None:
            return False
        if abs(value - decimal.value) * 2 <= (decimal.ulp or 1):
            return self._shown()
        try:
            printed = Decimal(repr(float(value)))
        except OverflowError:
            return False
        last_place = Fraction(Decimal(1).scaleb(int(printed.as_tuple().exponent)))
        return (decimal.value, decimal.ulp) == (Fraction(printed), last_place)

    def shows(self, decimal: t.Num, exact: t.Node, least: int) -> bool:
        """Returns whether a decimal is an exact number, rounded or truncated.

        The decimal needs `least` significant digits, and fewer places than the number.
        """
        if (value := self._other(decimal, exact, least)) is None:
            return False
        error, ulp = value - decimal.value, decimal.ulp or 1
        toward_zero = error if decimal.value > 0 else -error
        rounded = abs(error) * 2 <= ulp or 0 <= toward_zero < ulp
        return rounded and self._shown()

    def _other(self, decimal: t.Num, exact: t.Node, least: int) -> Fraction | None:
        ulp = decimal.ulp or Fraction(1)
        if len(str(abs(decimal.value / ulp).numerator)) < least:
            return None
        if type(exact) is t.Num:
            fits = (exact.value / ulp).denominator == 1
            return None if exact.ulp is not None or fits else exact.value
        if not isinstance(exact, t.Expression) or t.contains(exact, t.Sym):
            return None
        return self.balls.fraction(exact)


def _is_infinite(node: t.Node) -> bool:
    kind = type(node)
    return (kind is t.Const or kind is t.Mul) and node in (t.INFINITY, t.MINUS_INFINITY)
