"""The finite field: a homomorphism on what it accepts."""

import math
from fractions import Fraction

import pytest
import sympy

from rl.verifier import modular, tree
from rl.verifier.answers import parse_answer


def _image(text: str) -> int:
    return modular.evaluate(parse_answer(text).node)


def test_the_modulus():
    assert sympy.isprime(modular.P)
    assert modular.P.bit_length() == 279
    # -1 and all primes below 200 are squares.
    for value in (-1, *sympy.primerange(200)):
        assert pow(value, (modular.P - 1) // 2, modular.P) == 1


@pytest.mark.parametrize("n", [2, 3, 6, 12, 199, 720, 9, 49 * 13])
def test_roots_multiply_and_are_principal(n):
    assert pow(_image(f"\\sqrt{{{n}}}"), 2, modular.P) == n
    for m in (2, 3, 35):
        product = _image(f"\\sqrt{{{n}}}") * _image(f"\\sqrt{{{m}}}") % modular.P
        assert product == _image(f"\\sqrt{{{n * m}}}")
    if math.isqrt(n) ** 2 == n:
        assert _image(f"\\sqrt{{{n}}}") == math.isqrt(n)


def test_fractions_and_large_powers():
    third = modular.evaluate(tree.number(Fraction(1, 3)))
    assert third * 3 % modular.P == 1
    assert _image("2^{100000}") == pow(2, 100_000, modular.P)
    assert _image("i^2") == modular.P - 1


@pytest.mark.parametrize(
    "text", ["\\sin x", "2^n", "\\sqrt[3]{2}", "\\sqrt{211}", "|x|"]
)
def test_what_has_no_exact_image_is_refused(text):
    with pytest.raises(modular.Inexact):
        _image(text)


def test_a_vanishing_denominator_is_noticed():
    with pytest.raises(ZeroDivisionError):
        _image("\\frac{1}{x - x}")
