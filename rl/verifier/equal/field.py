"""Exact evaluation in a finite field: equality of rational functions and radicals.

The map that sends variables, pi and e to random elements, sqrt(-1) and the square
roots of small primes to their roots in the field, is a ring homomorphism. Two equal
expressions have equal images; two different ones have, for a prime of 279 bits, the
same image with a probability that is negligible. So one evaluation decides, both
ways, without rounding and without numbers that grow.
"""

import functools
import hashlib
import math
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction

from ..parse.budget import Budget
from ..parse.tree import (
    MAX_BITS,
    Add,
    Big,
    Call,
    Const,
    Degrees,
    Fn,
    Mul,
    Node,
    Num,
    Percent,
    Pow,
    Sym,
    bits,
)

_PRIMES = tuple(
    n for n in range(2, 200) if all(n % d for d in range(2, math.isqrt(n) + 1))
)
# With p - 1 divisible by 8 and by an odd prime q, q is a square modulo p (quadratic
# reciprocity); so are -1 and 2. 25 is the least odd factor that makes p a prime.
P = 25 * 4 * math.prod(_PRIMES) + 1
_MAX_FACTORIAL = 3_000
_MAX_TERMS = 5_000
_INVERSE_STEPS = 15
_GCD_BITS, _POWER_BITS, _RESIDUE_BITS, _RING_BITS = 1 << 18, 1 << 22, 1 << 10, 640
"""Products of two lengths in bits that take a microsecond: in a greatest common
divisor, which each sum and product of fractions needs; in a power of a rational; in a
division by P, whose length is left out; in a power modulo a number."""


class Inexact(Exception):
    """The expression has no image in the field."""


class Field:
    """Images of expressions at one point.

    Args:
      budget: what the evaluation may take.
      salt: chooses the point: the variables' values. Constants stay.
    """

    def __init__(self, budget: Budget, salt: int = 0):
        self._budget = budget
        self._salt = salt
        self._bound: dict[str, int] = {}

    def image(self, node: Node) -> int:
        """The image of an expression without plus-minus.

        Raises:
          Inexact: where something has no exact image (a sine, a cube root, 2^n).
          ZeroDivisionError: where a denominator vanishes.
          Open: when the budget is spent.
        """
        self._budget.charge(1)
        match node:
            case Num(value):
                self._budget.charge(bits(value) // _RESIDUE_BITS)
                return _rational(value)
            case Sym(name):
                if name in self._bound:
                    return self._bound[name] % P
                return _random(f"{self._salt} {name}")
            case Add(terms):
                return sum([self.image(term) for term in terms]) % P
            case Mul(factors):
                product = 1
                for factor in factors:
                    product = product * self.image(factor) % P
                return product
            case Pow(base, exponent):
                return self._power(base, exponent)
            case Const("i"):
                return _root_of(-1)
            case Const(name) if name != "inf":
                return _random(f"constant {name}")
            case Call(name, arguments):
                images = [self.image(argument) for argument in arguments]
                return _random(f"call {name} {images}")
            case Degrees(value):
                pi = _random("constant pi")
                return self.image(value) * pi * _inverse(180) % P
            case Percent(value):
                return self.image(value) * _inverse(100) % P
            case Fn("mod", (value, modulus)):
                return self._residue(value, self._exact(modulus))
            case Fn(name, arguments):
                return self._function(name, [self._exact(a) for a in arguments])
            case Big("sum" | "prod"):
                return self._series(node)
        raise Inexact

    def _exact(self, node: Node) -> Fraction:
        """The rational value of a node, where no step to it takes many bits."""
        self._budget.charge(1)
        match node:
            case Num(value):
                return value
            case Sym(name) if name in self._bound:
                return Fraction(self._bound[name])
            case Add(terms):
                return self._reduced(operator.add, map(self._exact, terms))
            case Mul(factors):
                return self._reduced(operator.mul, map(self._exact, factors))
            case Pow(base, exponent):
                value, n = self._exact(base), self._exact(exponent)
                size = abs(n) * bits(value)
                if n.denominator == 1 and size < MAX_BITS:
                    self._budget.charge(int(size) ** 2 // _POWER_BITS)
                    return value ** int(n)
            case Percent(value):
                return self._exact(value) / 100
        raise Inexact

    def _operate(self, operation: Callable, left, right):
        """An operation on two exact numbers, paid by their lengths.

        A number of many digits takes few characters, and a sum few more.
        """
        self._budget.charge(bits(left) * bits(right) // _GCD_BITS)
        result = operation(left, right)
        if bits(result) > MAX_BITS:
            raise Inexact
        return result

    def _reduced(self, operation: Callable, values: Iterable):
        values = iter(values)
        total = next(values)
        for value in values:
            total = self._operate(operation, total, value)
        return total

    def _function(self, name: str, values: list[Fraction]) -> int:
        """Functions of rationals whose values are rational."""
        match name, *values:
            case "max" | "min", *_:
                return _rational(self._reduced(max if name == "max" else min, values))
            case "gcd", *_ if _whole(values):
                return self._reduced(math.gcd, [0, *map(int, values)]) % P
            case "lcm", *_ if _whole(values):
                return self._reduced(math.lcm, [1, *map(int, values)]) % P
            case "abs", value:
                return _rational(abs(value))
            case "sgn", value:
                return ((value > 0) - (value < 0)) % P
            case "floor", value:
                return self._operate(operator.floordiv, *value.as_integer_ratio()) % P
            case "ceil", value:
                top, bottom = (-value).as_integer_ratio()
                return -self._operate(operator.floordiv, top, bottom) % P
            case "fact", value if _counts(value):
                self._budget.charge(int(value) // 8)
                return math.factorial(int(value)) % P
            case "binom", top, bottom if _counts(top, bottom) and bottom <= top:
                self._budget.charge(int(top) // 8)
                return math.comb(int(top), int(bottom)) % P
        raise Inexact

    def _residue(self, node: Node, modulus: Fraction) -> int:
        """A remainder: of an integer in the ring of residues, else of a rational."""
        if modulus.denominator == 1 and 0 < modulus < 2**256:
            try:
                return self._in_ring(node, int(modulus)) % P
            except Inexact:
                pass
        if not modulus:
            raise ZeroDivisionError
        return _rational(self._operate(operator.mod, self._exact(node), modulus))

    def _in_ring(self, node: Node, modulus: int) -> int:
        self._budget.charge(1)
        match node:
            case Num(value) if value.denominator == 1:
                self._budget.charge(bits(value) // _RESIDUE_BITS)
                return int(value) % modulus
            case Sym(name) if name in self._bound:
                return self._bound[name] % modulus
            case Add(terms):
                return sum(self._in_ring(term, modulus) for term in terms) % modulus
            case Mul(factors):
                product = 1
                for factor in factors:
                    product = product * self._in_ring(factor, modulus) % modulus
                return product
            case Pow(base, exponent):
                n = self._exact(exponent)
                if n.denominator == 1 and n >= 0:
                    length = modulus.bit_length() + 16
                    self._budget.charge(bits(n) * length // _RING_BITS)
                    return pow(self._in_ring(base, modulus), int(n), modulus)
        raise Inexact

    def _power(self, base: Node, exponent: Node) -> int:
        power = self._exact(exponent)
        n, root = power.numerator, power.denominator
        if root == 1:
            value = self.image(base)
        elif root == 2:
            square = self._exact(base)
            value = _root_of(square.numerator * square.denominator)
            value = value * _inverse(square.denominator) % P
        else:
            raise Inexact
        if n < 0:
            self._budget.charge(_INVERSE_STEPS)
            value, n = _inverse(value), -n
        if value:
            # Fermat: the powers of what is not zero have the period P - 1.
            self._budget.charge(bits(power) // _RESIDUE_BITS)
            n %= P - 1
        elif n:
            return 0
        self._budget.charge(n.bit_length() // 2)
        return pow(value, n, P)

    def _series(self, node: Big) -> int:
        low, high = self._exact(node.lower), self._exact(node.upper)
        if low.denominator != 1 or high.denominator != 1 or high - low > _MAX_TERMS:
            raise Inexact
        name = node.index.name
        outer = self._bound.get(name)
        total = 0 if node.kind == "sum" else 1
        try:
            for step in range(int(low), int(high) + 1):
                self._bound[name] = step
                term = self.image(node.body)
                total = (total + term if node.kind == "sum" else total * term) % P
        finally:
            if outer is None:
                self._bound.pop(name, None)
            else:
                self._bound[name] = outer
        return total


def _rational(value: Fraction) -> int:
    if value.denominator == 1:
        return value.numerator % P
    return value.numerator * _inverse(value.denominator) % P


def _inverse(value: int) -> int:
    if value % P == 0:
        raise ZeroDivisionError
    return pow(value, -1, P)


@functools.lru_cache(maxsize=4096)
def _random(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=40).digest()
    return int.from_bytes(digest, "big") % P


@functools.lru_cache(maxsize=1024)
def _root_of(square: int) -> int:
    """The image of the principal root of an integer with small prime factors."""
    value, rest = 1, abs(square)
    if rest.bit_length() > 256:
        raise Inexact
    if square < 0:
        # A root of -1: any non-residue to the power (p - 1) / 4.
        value = pow(_non_residue(), (P - 1) // 4, P)
    for prime in _PRIMES:
        while rest and rest % (prime * prime) == 0:
            rest //= prime * prime
            value = value * prime % P
        if rest % prime == 0 and rest:
            rest //= prime
            value = value * _tonelli_shanks(prime) % P
    whole = math.isqrt(rest)
    if whole * whole != rest:
        raise Inexact
    return value * whole % P


@functools.cache
def _non_residue() -> int:
    # All primes up to 199 are residues, so that every n below 211 is one too.
    return next(n for n in range(211, 10_000) if pow(n, (P - 1) // 2, P) == P - 1)


@functools.cache
def _tonelli_shanks(square: int) -> int:
    odd, twos = P - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    factor = pow(_non_residue(), odd, P)
    root, rest = pow(square, (odd + 1) // 2, P), pow(square, odd, P)
    while rest != 1:
        order, power = 0, rest
        while power != 1:
            power, order = power * power % P, order + 1
        step = pow(factor, 1 << (twos - order - 1), P)
        twos, factor = order, step * step % P
        root, rest = root * step % P, rest * factor % P
    return root


def _whole(values: Iterable[Fraction]) -> bool:
    return all(value.denominator == 1 for value in values)


def _counts(*values: Fraction) -> bool:
    return _whole(values) and all(0 <= value <= _MAX_FACTORIAL for value in values)
