"""Proves identities such as x/(x + 1) + 1/(x + 1) = 1 by exact arithmetic."""

import functools
from fractions import Fraction

from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx, fmpz

from ..parse import tree as t
from ..parse.budget import Budget

_MAX_NAMES, _MAX_TERMS, _MAX_DEGREE, _MAX_BITS = 16, 50, 24, 200
_MAX_FACTORED_BITS, _MAX_REPLACED = 40, 1_000
_RING = fmpq_mpoly_ctx.get(("x", _MAX_NAMES), Ordering.lex)
_ONE = _RING.constant(1)
_DEGREE = t.Mul((t.number(Fraction(1, 180)), t.Const("pi")))
_RATIOS = {
    "sec": ("", "cos"), "csc": ("", "sin"), "tan": ("sin", "cos"), "cot": ("cos", "sin")
}  # fmt: skip

Quotient = tuple[fmpq_mpoly, fmpq_mpoly]


def identical(left: t.Node, right: t.Node, budget: Budget) -> bool:
    """Returns whether expressions are shown to be the same quotient of polynomials.

    Parts such as sin x count as variables. True means that the expressions are equal
    wherever both are defined. False may also mean that one has an unsupported part.
    """
    reader = _Reader(budget)
    try:
        (a, b), (c, d) = reader.read(left), reader.read(right)
        return not reader.remainder(_product(a, d) - _product(c, b))
    except ValueError:
        return False


def proportion(left: t.Node, right: t.Node, budget: Budget) -> fmpq | None:
    """Returns left / right for polynomials in variables, or 0 if it is not a constant.

    Returns None if a side is 0 or is not such a polynomial.
    """
    reader = _Reader(budget)
    try:
        (a, b), (c, d) = reader.read(left), reader.read(right)
    except ValueError:
        return None
    if not (a and c and b == d == 1 and all(key[0] is t.Sym for key in reader.names)):
        return None
    factor = a.leading_coefficient() / c.leading_coefficient()
    return factor if a == factor * c else fmpq(0)


class _Reader:
    def __init__(self, budget: Budget):
        self._budget = budget
        self.names: list[tuple] = []
        # For each root g: its index in the ring, its degree, and g^degree - radicand.
        self._roots: list[tuple[int, int, fmpq_mpoly]] = []

    def read(self, node: t.Node) -> Quotient:
        """Converts an expression to a quotient of polynomials, or raises ValueError."""
        self._budget.charge(2)
        match node:
            case t.Num(value) if t.bits(value) <= _MAX_BITS:
                return _RING.constant(fmpq(*value.as_integer_ratio())), _ONE
            case t.Add(terms):
                return functools.reduce(_sum, map(self.read, terms))
            case t.Mul(factors):
                return functools.reduce(_times, map(self.read, factors))
            case t.Pow(base, t.Num(n)) if n.denominator == 1:
                return _power(self.read(base), int(n))
            case t.Pow(base, t.Num(n)) if n.denominator <= _MAX_DEGREE:
                return self._root(self.read(base), *n.as_integer_ratio())
            case t.Degrees(value):
                return self.read(t.Mul((value, _DEGREE)))
            case t.Fn("sec" | "csc" | "tan" | "cot" as ratio, arguments):
                over, under = _RATIOS[ratio]
                bottom = self.read(t.Fn(under, arguments))
                top = self.read(t.Fn(over, arguments)) if over else (_ONE, _ONE)
                return _times(top, _power(bottom, -1))
            case t.Fn("fact", (argument,)):
                return self._factorial(*self._reduced(self.read(argument)))
            case t.Const("i"):
                return self._name(("i",), 2, _RING.constant(-1)), _ONE
            case t.Sym() | t.Const() | t.Pow() | t.Fn() | t.Call():
                if node != t.INFINITY:
                    parts = [self._reduced(self.read(p)) for p in t.children(node)]
                    name = getattr(node, "name", "")
                    return self._name((type(node), name, *parts)), _ONE
        raise ValueError("is not supported")

    def _name(
        self, key: tuple, degree: int = 0, radicand: fmpq_mpoly | None = None
    ) -> fmpq_mpoly:
        """Returns the variable of a part, or of a root: variable^degree = radicand."""
        if key not in self.names:
            self.names.append(key)
            if radicand is not None and len(self.names) <= _MAX_NAMES:
                name = self._name(key)
                place = _MAX_NAMES - len(self.names)
                self._roots.insert(0, (place, degree, name**degree - radicand))
        # Later variables come first in the order of terms: roots before radicands.
        place = _MAX_NAMES - 1 - self.names.index(key)
        if place < 0:
            raise ValueError("has too many names")
        return _RING.gen(place)

    def _factorial(self, top: fmpq_mpoly, bottom: fmpq_mpoly) -> Quotient:
        """Returns n!, from an earlier factorial if possible: n! = n (n - 1)!"""
        if bottom != 1:
            raise ValueError("is not supported")
        for known in [key[1] for key in self.names if key[0] == "fact"]:
            steps = (top - known).leading_coefficient()
            if top - known == steps and steps.q == 1 and abs(steps) <= _MAX_DEGREE:
                first = known if steps > 0 else top
                factors = [first + i for i in range(1, abs(int(steps.p)) + 1)]
                product = functools.reduce(_product, factors, _ONE)
                name = self._name(("fact", known))
                return (_product(product, name), _ONE) if steps > 0 else (name, product)
        return self._name(("fact", top)), _ONE

    def remainder(self, value: fmpq_mpoly) -> fmpq_mpoly:
        """Replaces g^degree by the radicand, for each root g."""
        for place, degree, relation in self._roots:
            times = value.degrees()[place] // degree
            if times > 0:
                if (len(relation) - 1) ** times * len(value) > _MAX_REPLACED:
                    raise ValueError("is too large")
                value = divmod(value, relation)[1]
        return value

    def _reduced(self, value: Quotient) -> Quotient:
        top, bottom = map(self.remainder, value)
        if not bottom.is_constant() and len(top) * len(bottom) <= _MAX_TERMS:
            common = top.gcd(bottom)
            top, bottom = top / common, bottom / common
        scale = bottom.leading_coefficient()
        return top / scale, bottom / scale

    def _root(self, base: Quotient, power: int, degree: int) -> Quotient:
        """Returns base^(power/degree); roots of numbers become roots of primes."""
        top, bottom = self._reduced(base)
        if not top:
            raise ValueError("is undefined or zero")
        scale = abs(top.leading_coefficient())
        value = self._constant_root(scale, power, degree)
        if (rest := top / scale) == bottom == 1:
            return value, _ONE
        radicand = rest if bottom == 1 else None
        name = self._name((degree, rest, bottom), degree, radicand)
        return _times((value, _ONE), _power((name, _ONE), power))

    def _constant_root(self, base: fmpq, power: int, degree: int) -> fmpq_mpoly:
        value = _ONE
        if base.height_bits() > _MAX_FACTORED_BITS or abs(power) > _MAX_DEGREE:
            raise ValueError("is too large")
        for number, sign in ((base.p, power), (base.q, -power)):
            for prime, times in fmpz(number).factor():
                whole, rest = divmod(times * sign, degree)
                value *= _RING.constant(fmpq(prime) ** whole)
                if rest:
                    name = self._name((degree, prime), degree, _RING.constant(prime))
                    value *= name**rest
        return value


def _product(left: fmpq_mpoly, right: fmpq_mpoly) -> fmpq_mpoly:
    if left.is_one():
        return right
    value = left * right
    if len(value) > _MAX_TERMS or value.total_degree() > _MAX_DEGREE:
        raise ValueError("is too large")
    return value


def _sum(left: Quotient, right: Quotient) -> Quotient:
    (a, b), (c, d) = left, right
    if b == d:
        return a + c, b
    return _product(d, a) + _product(b, c), _product(b, d)


def _times(left: Quotient, right: Quotient) -> Quotient:
    return _product(left[0], right[0]), _product(left[1], right[1])


def _power(base: Quotient, exponent: int) -> Quotient:
    if exponent < 0:
        base = base[::-1]
    if abs(exponent) > _MAX_DEGREE or not base[1]:
        raise ValueError("is too large or undefined")
    return functools.reduce(_times, [base] * abs(exponent), (_ONE, _ONE))
