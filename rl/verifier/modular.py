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

from rl.verifier.tree import Node

_PRIMES = tuple(
    n for n in range(2, 200) if all(n % d for d in range(2, math.isqrt(n) + 1))
)
# With p - 1 divisible by 8 and by an odd prime q, q is a square modulo p (quadratic
# reciprocity); so are -1 and 2. 25 is the least odd factor that makes p a prime.
P = 25 * 4 * math.prod(_PRIMES) + 1
_MAX_FACTORIAL = 3_000


class Inexact(Exception):
    """The expression has no image in the field."""


def evaluate(node: Node, salt: int = 0) -> int:
    """The image of an expression.

    Args:
      node: an expression without plus-minus.
      salt: chooses another random point for the variables; constants stay.

    Raises:
      Inexact: where something has no exact image (a sine, a cube root, 2^n).
      ZeroDivisionError: where a denominator vanishes.
    """
    kind = node[0]
    if kind == "num":
        return _rational(node[1])
    if kind == "sym":
        return _random(f"{salt} {node[1]}")
    if kind == "add":
        return sum([evaluate(part, salt) for part in node[1:]]) % P
    if kind == "mul":
        product = 1
        for part in node[1:]:
            product = product * evaluate(part, salt) % P
        return product
    if kind == "pow":
        return _power(node[1], node[2], salt)
    if kind == "const":
        if node[1] == "i":
            return _root_of(-1)
        if node[1] == "inf":
            raise Inexact
        return _random(f"constant {node[1]}")
    if kind == "call":
        arguments = [evaluate(part, salt) for part in node[2:]]
        return _random(f"call {node[1]} {arguments}")
    if kind == "deg":
        return evaluate(node[1], salt) * _random("constant pi") * _inverse(180) % P
    if kind == "percent":
        return evaluate(node[1], salt) * _inverse(100) % P
    if kind == "fn":
        return _function(node[1], node[2:])
    raise Inexact


def _rational(value) -> int:
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


def _power(base: Node, exponent: Node, salt: int) -> int:
    if exponent[0] != "num":
        raise Inexact
    n, root = exponent[1].numerator, exponent[1].denominator
    if root == 1:
        value = evaluate(base, salt)
        return pow(_inverse(value), -n, P) if n < 0 else pow(value, n, P)
    if root != 2 or base[0] != "num":
        raise Inexact
    square = base[1]
    value = _root_of(square.numerator * square.denominator)
    value = value * _inverse(square.denominator) % P
    return pow(_inverse(value), -n, P) if n < 0 else pow(value, n, P)


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


def _function(name: str, arguments: tuple[Node, ...]) -> int:
    """Functions of plain rationals whose values are rational."""
    if any(argument[0] != "num" for argument in arguments):
        raise Inexact
    values = [argument[1] for argument in arguments]
    whole = all(value.denominator == 1 for value in values)
    if name == "abs":
        return _rational(abs(values[0]))
    if name == "floor":
        return math.floor(values[0]) % P
    if name == "ceil":
        return math.ceil(values[0]) % P
    if name in ("max", "min"):
        return _rational(max(values) if name == "max" else min(values))
    if whole and name == "fact" and 0 <= values[0] <= _MAX_FACTORIAL:
        return math.factorial(int(values[0])) % P
    if whole and name == "binom" and 0 <= values[1] <= values[0] <= _MAX_FACTORIAL:
        return math.comb(int(values[0]), int(values[1])) % P
    if whole and name in ("gcd", "lcm"):
        integers = map(int, values)
        return (math.gcd(*integers) if name == "gcd" else math.lcm(*integers)) % P
    raise Inexact
