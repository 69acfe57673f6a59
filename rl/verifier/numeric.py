"""Evaluation at fixed points with 50 digits, where the finite field does not reach.

Over the reals as far as possible: odd roots of negatives are real, and a point at which
something is undefined says nothing. Expressions with i are evaluated over the complex
numbers. Every operation is bounded; what exceeds a bound is undefined too.
"""

import functools
import hashlib
import math

import mpmath

from rl.verifier import tree
from rl.verifier.tree import Node

_MAX_TERMS = 400
_MAX_WORK = 20_000
_MAX_EXPONENT_BITS = 40_000
_MAX_FACTORIAL = 10**6
_MAX_MAGNITUDE = 4_000
_SAME = mpmath.mpf(10) ** -35
_FULL = mpmath.mpf(10) ** 34
_SUMS = frozenset({"add"})
_NOISE = mpmath.mpf(10) ** -38
_INTEGER_POINTS = (5, 6, 7)
_REAL_POINTS = (0, 1, 2, 3, 4)
_INTERVALS = {0: (0.15, 0.85), 1: (-2.5, 2.5), 2: (1.1, 2.9), 3: (-0.9, -0.1)}

context = mpmath.MPContext()
context.dps = 50


class Undefined(Exception):
    """No value at this point, or none within the bounds."""


@functools.lru_cache(maxsize=4096)
def _coordinate(name: str, point: int):
    """A fixed pseudo-random value of a variable at a point."""
    digest = hashlib.blake2b(f"{point} {name}".encode("utf-8", "replace")).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if point >= 5:
        return context.mpf(
            2 + point + digest[0] % 5 if point > 5 else 2 + digest[0] % 7
        )
    low, high = _INTERVALS.get(point, (0.2, 5.0))
    return context.mpf(low + share * (high - low))


class _Evaluator:
    def __init__(self, point: int, complex_numbers: bool):
        self._point = point
        self._complex = complex_numbers
        self._bound: dict[str, mpmath.mpf] = {}
        self._work = 0
        self.scale = context.mpf(0)

    def value(self, node: Node):
        self._work += 1
        if self._work > _MAX_WORK:
            raise Undefined
        evaluate_kind = getattr(self, "_" + node[0], None)
        if evaluate_kind is None:
            raise Undefined
        result = evaluate_kind(node)
        if not context.isfinite(result):
            raise Undefined
        size = abs(result)
        if size > self.scale:
            self.scale = size
        return result

    def _num(self, node):
        value = node[1]
        if value.denominator == 1:
            return context.mpf(value.numerator)
        return context.mpf(value.numerator) / value.denominator

    def _sym(self, node):
        if node[1] in self._bound:
            return self._bound[node[1]]
        return _coordinate(node[1], self._point)

    def _const(self, node):
        match node[1]:
            case "pi":
                return +context.pi
            case "e":
                return +context.e
            case "i" if self._complex:
                return context.mpc(0, 1)
        raise Undefined

    def _add(self, node):
        return context.fsum([self.value(part) for part in node[1:]])

    def _mul(self, node):
        return context.fprod([self.value(part) for part in node[1:]])

    def _deg(self, node):
        return self.value(node[1]) * context.pi / 180

    def _percent(self, node):
        return self.value(node[1]) / 100

    def _call(self, node):
        values = [context.nstr(self.value(part), 30) for part in node[2:]]
        return _coordinate(f"{node[1]} {values}", 2)

    def _pow(self, node):
        base, exponent = self.value(node[1]), self.value(node[2])
        if base == 0:
            if context.re(exponent) <= 0:
                raise Undefined
            return context.mpf(0)
        if not self._complex and base < 0 and not context.isint(exponent):
            odd = node[2][0] == "num" and node[2][1].denominator % 2 == 1
            if not odd:
                raise Undefined
            size = self._bounded_power(-base, exponent)
            return -size if node[2][1].numerator % 2 else size
        return self._bounded_power(base, exponent)

    def _bounded_power(self, base, exponent):
        if abs(exponent) * (abs(context.mag(base)) + 1) > _MAX_EXPONENT_BITS:
            raise Undefined
        return base**exponent

    def _fn(self, node):
        name = node[1]
        values = [self.value(part) for part in node[2:]]
        if name in ("max", "min", "gcd", "lcm"):
            return self._several(name, values)
        if name == "binom":
            return self._binomial(*values)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise Undefined
        if not self._complex:
            _check_domain(name, values[0])
        if values[0] and abs(context.mag(values[0])) > _MAX_MAGNITUDE:
            raise Undefined
        result = function(values[0])
        if not self._complex and isinstance(result, context.mpc):
            raise Undefined
        return result

    def _several(self, name, values):
        if any(isinstance(value, context.mpc) for value in values):
            raise Undefined
        if name in ("max", "min"):
            return max(values) if name == "max" else min(values)
        if not all(map(context.isint, values)):
            raise Undefined
        whole = [int(value) for value in values]
        return context.mpf(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))

    def _binomial(self, top, bottom):
        if not (_is_count(top) and _is_count(bottom)):
            raise Undefined
        return context.binomial(top, bottom)

    def _big(self, node):
        _, name, index, lower, upper, body = node
        if name not in ("sum", "prod"):
            raise Undefined
        low, high = self.value(lower), self.value(upper)
        if not (context.isint(low) and context.isint(high)):
            raise Undefined
        if high - low > _MAX_TERMS:
            raise Undefined
        outer = self._bound.get(index[1])
        total = context.mpf(0 if name == "sum" else 1)
        for step in range(int(low), int(high) + 1):
            self._bound[index[1]] = context.mpf(step)
            term = self.value(body)
            total = total + term if name == "sum" else total * term
        if outer is None:
            self._bound.pop(index[1], None)
        else:
            self._bound[index[1]] = outer
        return total


def _is_count(value) -> bool:
    return (
        not isinstance(value, context.mpc)
        and context.isint(value)
        and 0 <= value <= _MAX_FACTORIAL
    )


def _check_domain(name: str, value) -> None:
    if name == "log" and value <= 0:
        raise Undefined
    if name in ("arcsin", "arccos") and abs(value) > 1:
        raise Undefined
    if name in ("fact", "fact2") and not _is_count(value):
        raise Undefined
    if name in ("tan", "sec") and abs(context.cos(value)) < _NOISE:
        raise Undefined
    if name in ("cot", "csc") and abs(context.sin(value)) < _NOISE:
        raise Undefined


_FUNCTIONS = {
    "sin": context.sin, "cos": context.cos, "tan": context.tan, "cot": context.cot,
    "sec": context.sec, "csc": context.csc, "arcsin": context.asin,
    "arccos": context.acos, "arctan": context.atan, "arccot": context.acot,
    "arcsec": context.asec, "arccsc": context.acsc, "sinh": context.sinh,
    "cosh": context.cosh, "tanh": context.tanh, "coth": context.coth,
    "sech": context.sech, "csch": context.csch, "log": context.log, "abs": abs,
    "fact": context.factorial, "fact2": context.fac2, "floor": context.floor,
    "ceil": context.ceil, "sgn": context.sign, "arg": context.arg,
}  # fmt: skip


def evaluate(node: Node, point: int = 0, *, complex_numbers: bool = False):
    """The value at a point and the largest magnitude met on the way.

    Raises:
      Undefined: where there is no value within the bounds.
    """
    evaluator = _Evaluator(point, complex_numbers)
    try:
        return evaluator.value(node), evaluator.scale
    except (ValueError, ZeroDivisionError, OverflowError, MemoryError) as error:
        raise Undefined from error
    except (TypeError, mpmath.libmp.NoConvergence) as error:
        # An order between complex numbers, or a series that does not settle.
        raise Undefined from error


def real_value(node: Node) -> float | None:
    """A constant as a float, infinities included; None where it is no real number."""
    if node == tree.INFINITY:
        return float("inf")
    if node == tree.negative(tree.INFINITY):
        return float("-inf")
    if tree.symbols(node):
        return None
    try:
        return float(evaluate(node)[0])
    except (Undefined, OverflowError, TypeError):
        return None


def agree(left: Node, right: Node) -> bool | None:
    """Whether two expressions have the same values.

    Returns:
      False at the first point that tells them apart, True where enough points agree,
      None where too few points are defined.
    """
    if tree.size(left) + tree.size(right) > _MAX_WORK // 10:
        return None
    complex_numbers = tree.contains_constant(left, "i") or tree.contains_constant(
        right, "i"
    )
    constant = not (tree.symbols(left) or tree.symbols(right))
    points = (0,) if constant else _REAL_POINTS
    agreed = _agreement(left, right, points, complex_numbers)
    if agreed is None and not constant:
        agreed = _agreement(left, right, _INTEGER_POINTS, complex_numbers)
    if agreed is None and not complex_numbers:
        points = (0,) if constant else (0, 1, 2)
        agreed = _agreement(left, right, points, True)
    return agreed


def _agreement(left: Node, right: Node, points, complex_numbers: bool) -> bool | None:
    agreeing = 0
    for point in points:
        try:
            a, scale_a = evaluate(left, point, complex_numbers=complex_numbers)
            b, scale_b = evaluate(right, point, complex_numbers=complex_numbers)
        except Undefined:
            continue
        size = max(abs(a), abs(b))
        if abs(a - b) > _SAME * size:
            if size > _NOISE * max(scale_a, scale_b):
                return False
        elif size > _FULL and tree.contains(left, _SUMS) | tree.contains(right, _SUMS):
            # A large sum may hide a difference below the digits that are kept.
            return None
        agreeing += 1
    return True if agreeing >= min(2, len(points)) else None
