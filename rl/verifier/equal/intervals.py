"""Encloses the values of expressions with Arb's ball arithmetic.

A ball is a number with an error bound that covers all rounding errors. Odd roots of
negative numbers are real up to degree 100, except in expressions with i.

F. Johansson, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic,
IEEE Transactions on Computers 66(8), 2017.
"""

import contextlib
import functools
import itertools
import math
import operator
import threading
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from flint import acb, arb, ctx, fmpq, fmpz

from ..parse import tree as t
from ..parse.budget import Budget
from .points import INTEGER, REAL, Point, coordinate, spread
from .polynomials import identical

FIRST_BITS = 128
FULL_BITS = 2048
"""Precision of the final comparison: values count as equal if 0 is in a narrow ball
around their difference. `Balls._resolution` adds bits if terms differ much in size.
"""
_NARROW_BITS = 1024
_MAX_BITS = 40_000
_MAX_FACTORIAL = 10**6
_MAX_EXACT_FACTORIAL = 1_000
_MAX_ROOT = 100
_STEPS_OF_A_PAIR = 10
_STEPS_OF_GAMMA = 60
_GCD_BITS = 1 << 21
"""Product of the bit lengths of two numbers whose gcd takes about a microsecond."""

_lock = threading.RLock()  # all threads share Arb's precision


Value = Any  # arb, or acb for complex numbers


class Undefined(Exception):
    """Signals that an expression is undefined or not supported."""


class Unresolved(Exception):
    """Signals that a ball is too wide; a higher precision may help."""


class Balls:
    def __init__(self, budget: Budget):
        self._budget = budget
        # Storing the node prevents reuse of its id.
        self._known: dict[tuple, tuple[t.Node, Value | Exception]] = {}
        self._reach: dict[tuple, int] = {}

    def value(
        self, node: t.Node, bits: int, point: Point = REAL[0], imaginary: bool = False
    ) -> Value:
        """Returns a ball around the value of an expression, computed with `bits` bits.

        Uses complex numbers if `imaginary`. Raises `Undefined`, `Unresolved` or `Open`.
        """
        with _lock, ctx.workprec(bits):
            return self._value(node, bits, point, imaginary)

    def _value(self, node: t.Node, bits: int, point: Point, imaginary: bool) -> Value:
        key = (id(node), bits, point, imaginary)
        if (known := self._known.get(key)) is None:
            evaluator = _Evaluator(self._budget, bits, point, imaginary)
            try:
                found: Value | Exception = evaluator.value(node)
            except (Undefined, Unresolved) as error:
                found = error.with_traceback(None)
            except (ValueError, ZeroDivisionError, OverflowError, TypeError):
                found = Unresolved()
            self._reach[key] = evaluator.reach
            self._known[key] = known = node, found
        if isinstance(known[1], Exception):
            raise known[1]
        return known[1]

    def difference(self, left: t.Node, right: t.Node, bits: int, *where) -> Value:
        with _lock, ctx.workprec(bits):
            a, b = self._value(left, bits, *where), self._value(right, bits, *where)
            self._budget.charge(6)
            return a - b

    def agree(self, left: t.Node, right: t.Node) -> bool | None:
        """Returns whether expressions agree at sample points where both are defined.

        Returns None if undecided. docs/verifier.md describes the method.
        """
        self._budget.charge(_STEPS_OF_A_PAIR)
        imaginary = _has_i(left) or _has_i(right)
        if not (t.contains(left, t.Sym) or t.contains(right, t.Sym)):
            agreed = self._agree_at(left, right, REAL[:1], 1, imaginary)
            if agreed is None and not imaginary:
                agreed = self._agree_at(left, right, REAL[:1], 1, True)
            return agreed
        if {type(left), type(right)} <= {t.Num, t.Sym}:
            return left == right
        points = itertools.chain(REAL, spread(left, right))
        agreed = self._agree_at(left, right, points, 2, imaginary)
        if agreed is None:
            agreed = self._agree_at(left, right, INTEGER, 4, imaginary)
        if agreed is None and not imaginary:
            agreed = self._agree_at(left, right, REAL[:3], 2, True)
        return None if agreed and _bends(left) != _bends(right) else agreed

    def _agree_at(
        self, left: t.Node, right: t.Node,
        points: Iterable[Point], needed: int, imaginary: bool,
    ) -> bool | None:  # fmt: skip
        meeting, defined = [], 0
        for point in points:
            try:
                difference = self.difference(left, right, FIRST_BITS, point, imaginary)
                if not difference.contains(0):
                    return False
                defined += 1
                if defined == 1 and identical(left, right, self._budget):
                    return True
            except Undefined:
                continue
            except Unresolved:
                pass
            meeting.append(point)
        shown = 0
        for point in meeting:
            full, narrow = self._resolution(left, right, point, imaginary)
            if full > _MAX_BITS:
                continue
            with contextlib.suppress(Undefined, Unresolved), _lock, ctx.workprec(full):
                a = self.value(left, full, point, imaginary)
                b = self.value(right, full, point, imaginary)
                difference = self.difference(left, right, full, point, imaginary)
                if not difference.contains(0):
                    return False
                size = max(a.abs_lower(), b.abs_lower())
                shown += _is_narrow(difference, size, narrow)
            if shown >= needed:
                return True
        return None

    def _resolution(self, left: t.Node, right: t.Node, *where) -> tuple[int, int]:
        """Returns the precision and how many bits must agree; more for 1 + 10^-400."""
        keys = ((id(node), FIRST_BITS, *where) for node in (left, right))
        reach = max(self._reach.get(key, 0) for key in keys)
        return FULL_BITS + reach, _NARROW_BITS + reach

    def sign(self, node: t.Node, other: t.Node) -> int | None:
        """Returns the sign of node - other for real constants, or None if unknown."""
        where = REAL[0], False
        for full in (False, True):
            bits = self._resolution(node, other, *where)[0] if full else FIRST_BITS
            if bits > _MAX_BITS:
                return None
            with contextlib.suppress(Undefined, Unresolved):
                difference = self.difference(node, other, bits, *where)
                if not difference.contains(0):
                    return 1 if difference > 0 else -1
        return 0 if self.agree(node, other) else None

    def fraction(self, node: t.Node) -> Fraction | None:
        """Returns a real constant as a fraction accurate to 30 digits, or None."""
        with contextlib.suppress(Undefined, Unresolved):
            value = self.value(node, FIRST_BITS)
            mantissa, exponent = value.mid().man_exp()
            if value.rel_accuracy_bits() >= 100 and abs(int(exponent)) <= 2_000:
                return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
        return None


def _bends(node: t.Node) -> set[t.Node]:
    """Returns the arguments of functions with corners or jumps: x - 4 for |2x - 8|.

    If those of two expressions differ, sample points may miss where the values differ.
    """
    found = set()
    for part in t.walk(node):
        match part:
            case t.Fn(name, arguments) if name in _BENDING and part.names:
                found |= {_monic(a) for a in arguments if a.names}
            case t.Pow(base, t.Num(exponent)) if exponent.denominator % 2 == 0:
                for factor in base.factors if isinstance(base, t.Mul) else (base,):
                    match factor:
                        case t.Pow(inner, t.Num(power)) if power.numerator % 2 == 0:
                            found |= {_monic(inner)} if factor.names else set()
    return found


def _monic(node: t.Node) -> t.Node:
    """Divides an expression by the factor of its first term: 2x - 8 becomes x - 4."""
    match node:
        case t.Mul((t.Num(), *rest)):
            return t.mul(*rest)
        case t.Add((first, *_)) as total:
            scale = first.factors[0] if type(first) is t.Mul else t.ONE
            if type(scale) is t.Num and scale.value:
                return t.add(*(t.divide(term, scale) for term in total.terms))
    return node


def _has_i(node: t.Node) -> bool:
    return t.contains(node, t.Const) and t.IMAGINARY in t.walk(node)


def _is_narrow(difference: Value, size: arb, bits: int) -> bool:
    scale = size if size > 0 else arb(1)
    return bool(difference.abs_upper() * arb(2) ** bits < scale)


def _magnitude(value: Value) -> int | None:
    if value.contains(0):
        return None
    mantissa, exponent = value.abs_upper().man_exp()
    return int(exponent) + int(mantissa).bit_length()


class _Evaluator:
    def __init__(self, budget: Budget, bits: int, point: Point, imaginary: bool):
        self._budget = budget
        self._steps = 1 + bits // 128
        self._point = point
        self._imaginary = imaginary
        self.reach = 0
        """Additional bits that small contributions to the value have needed so far."""

    def value(self, node: t.Node) -> Value:
        self._budget.charge(2)
        evaluate = _EVALUATED.get(type(node))
        if evaluate is None:
            raise Undefined
        result = evaluate(self, node)
        if not result.is_finite():
            raise Unresolved
        return result

    def _num(self, node: t.Num) -> arb:
        self._note(t.bits(node.value))
        return self._number(node.value)

    def _const(self, node: t.Const) -> Value:
        if node.name == "inf" or node.name == "i" and not self._imaginary:
            raise Undefined
        return _CONSTANTS[node.name]()

    def _sum(self, node: t.Add) -> Value:
        values = [self.value(term) for term in node.terms]
        sizes = [m for m in map(_magnitude, values) if m is not None]
        if sizes:
            self._note(max(sizes) - min(sizes))
        return sum(values[1:], start=values[0])

    def _product(self, node: t.Mul) -> Value:
        return functools.reduce(operator.mul, map(self.value, node.factors))

    def _note(self, bits: int) -> None:
        if bits > self.reach:
            self.reach = bits

    def _note_flat(self, name: str, value: Value) -> None:
        size = _magnitude(value)
        if size is None or name == "log":
            return
        if size < 0 or name == "arctan":
            # Near zero, cos x and sin x / x differ from 1 by about x^2.
            self._note(2 * abs(size))
        elif name in _EXPONENTIAL:
            # tanh x and 2 cosh x / e^x differ from 1 by about e^-2x.
            self._note(3 << min(size, 20))

    def _number(self, value: Fraction) -> arb:
        top, bottom = value.as_integer_ratio()
        if bottom == 1:
            return arb(fmpz(top))
        self._budget.charge(top.bit_length() * bottom.bit_length() // _GCD_BITS)
        return arb(fmpq(top, bottom))

    def _unknown(self, node: t.Call) -> Value:
        """Evaluates an unknown function f(x) with an arbitrary fixed formula."""
        total: Value = arb(0)
        for place, part in enumerate(node.arguments):
            factor = self._number(coordinate(f"{node.name} {place}", REAL[4]))
            total = total + factor * self.value(part) * (place + 1)
        self._budget.charge(2 * self._steps)
        return (total + self._number(coordinate(node.name, REAL[2]))).sin().exp()

    def _power(self, node: t.Pow) -> Value:
        base = self.value(node.base)
        if type(node.exponent) is t.Num:
            exponent = node.exponent.value
        else:
            power = self.value(node.exponent)
            whole = _integer(power)
            if whole is None:
                return self._real_power(base, power)
            exponent = Fraction(int(whole))
        self._budget.charge(self._steps)
        n, root = exponent.numerator, exponent.denominator
        if n <= 0 and base.contains(0) and not (n == 0 and root == 1):
            raise Undefined if base == 0 else Unresolved
        if root == 1:
            if isinstance(base, arb) and base.contains(0):
                return (acb(base) ** fmpz(n)).real  # arb returns NaN here
            return base ** fmpz(n)
        if self._imaginary:
            if base == 0:
                return arb(0)
            return self._principal(base, acb(self._number(exponent)))
        if root > _MAX_ROOT:
            return self._real_power(base, self._number(exponent))
        if base >= 0:
            return base.root(root) ** fmpz(n)
        if base < 0:
            if root % 2 == 0:
                raise Undefined
            size = (-base).root(root) ** fmpz(n)
            return -size if n % 2 else size
        raise Unresolved

    def _real_power(self, base: Value, power: Value) -> Value:
        self._budget.charge(2 * self._steps)
        self._note_flat("exp", power)
        if self._imaginary:
            return self._principal(base, power)
        if base > 0:
            result = base**power
            if result.contains(0):
                # The power is positive, but too small for the precision.
                raise Unresolved
            return result
        if base == 0 and power > 0:
            return arb(0)
        raise Undefined if base <= 0 else Unresolved

    def _principal(self, base: Value, power: Value) -> Value:
        base = acb(base)
        result = base ** acb(power)
        if result.contains(0) and not base.contains(0):
            raise Unresolved
        return result

    def _function(self, node: t.Fn) -> Value:
        name, values = node.name, [self.value(part) for part in node.arguments]
        self._budget.charge(self._steps)
        if name in ("fact", "binom"):
            return self._of_integers(name, values)
        if name in ("floor", "ceil"):
            return self._rounded(name, values[0])
        (value,) = values
        if name == "abs":
            return abs(value)
        if name not in _ELEMENTARY:
            raise Undefined
        self._note_flat(name, value)
        if self._imaginary:
            return _ELEMENTARY[name](acb(value))
        if name == "log" and not value > 0:
            raise Undefined if value <= 0 else Unresolved
        if name in ("arcsin", "arccos") and abs(value) > 1:
            raise Undefined
        return _ELEMENTARY[name](value)

    def _rounded(self, name: str, value: Value) -> arb:
        value = _real(value)
        if (whole := _integer(value)) is not None:
            return arb(whole)
        rounded = value.floor() if name == "floor" else value.ceil()
        if _only_integer(rounded) is None:
            raise Unresolved
        return rounded

    def _of_integers(self, name: str, values: list[Value]) -> arb:
        whole = []
        for value in values:
            found = _integer(_real(value))
            if found is None or not 0 <= found <= _MAX_FACTORIAL:
                raise Undefined
            whole.append(int(found))
        if name == "fact":
            return self._factorial(whole[0])
        top, bottom = whole
        if bottom > top:
            return arb(0)
        below = self._factorial(bottom) * self._factorial(top - bottom)
        return self._factorial(top) / below

    def _factorial(self, number: int) -> arb:
        if number <= _MAX_EXACT_FACTORIAL:
            self._budget.charge(1 + number // 10)
            return arb(fmpz(math.factorial(number)))
        self._budget.charge(_STEPS_OF_GAMMA * self._steps)
        return arb(number + 1).gamma()


def _integer(value: Value) -> fmpz | None:
    """Returns the integer that a ball equals or almost equals, or None."""
    if isinstance(value, acb):
        if not value.imag == 0:
            return None
        value = value.real
    whole = _only_integer(value)
    if whole is None or value == whole:
        return whole
    return whole if _is_narrow(value - whole, arb(1), ctx.prec // 2) else None


def _real(value: Value) -> arb:
    if isinstance(value, acb):
        if not value.imag == 0:
            raise Unresolved
        return value.real
    return value


def _only_integer(value: arb) -> fmpz | None:
    """Returns the only integer in a ball, if it is below 2^MAX_BITS, else None."""
    above = value.abs_upper()  # `unique_fmpz` alone would abort for a huge exponent
    if above < 1:
        return fmpz(0) if value.contains(0) else None
    return value.unique_fmpz() if above < arb(2) ** t.MAX_BITS else None


_EVALUATED: dict[type, Callable[[_Evaluator, Any], Value]] = {
    t.Num: _Evaluator._num,
    t.Sym: lambda self, node: self._number(coordinate(node.name, self._point)),
    t.Const: _Evaluator._const,
    t.Add: _Evaluator._sum,
    t.Mul: _Evaluator._product,
    t.Pow: _Evaluator._power,
    t.Fn: _Evaluator._function,
    t.Call: _Evaluator._unknown,
    t.Degrees: lambda self, node: self.value(node.value) * arb.pi() / 180,
    t.Percent: lambda self, node: self.value(node.value) / 100,
}
_CONSTANTS = {"pi": arb.pi, "e": arb.const_e, "i": lambda: acb(0, 1)}
_EXPONENTIAL = frozenset({"sinh", "cosh", "tanh", "coth", "sech", "csch"})
_BENDING = frozenset({"abs", "floor", "ceil"})
_ELEMENTARY: dict[str, Callable[[Value], Value]] = {
    name: operator.methodcaller(name.replace("arc", "a"))
    for name in "sin cos tan cot sec csc log arcsin arccos arctan".split()
    + sorted(_EXPONENTIAL)
}
