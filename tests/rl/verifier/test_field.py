"""The finite field: a homomorphism on what it accepts."""

import math
from fractions import Fraction

import flint
import pytest

from rl.verifier.equal.field import Field, Inexact, P
from rl.verifier.parse.answers import parse_answer
from rl.verifier.parse.budget import Budget, Open
from rl.verifier.parse.tree import number


def _image(text: str, salt: int = 0) -> int:
    return Field(Budget(), salt).image(parse_answer(text).node)


def test_the_modulus():
    assert flint.fmpz(P).is_prime()
    assert P.bit_length() == 279
    # -1 and all primes below 200 are squares.
    primes = [n for n in range(2, 200) if flint.fmpz(n).is_prime()]
    assert len(primes) == 46
    for value in (-1, *primes):
        assert pow(value, (P - 1) // 2, P) == 1


@pytest.mark.parametrize("n", [2, 3, 6, 12, 199, 720, 9, 49 * 13])
def test_roots_multiply_and_are_principal(n):
    assert pow(_image(f"\\sqrt{{{n}}}"), 2, P) == n
    for m in (2, 3, 35):
        product = _image(f"\\sqrt{{{n}}}") * _image(f"\\sqrt{{{m}}}") % P
        assert product == _image(f"\\sqrt{{{n * m}}}")
    if math.isqrt(n) ** 2 == n:
        assert _image(f"\\sqrt{{{n}}}") == math.isqrt(n)


def test_fractions_and_large_powers():
    third = Field(Budget()).image(number(Fraction(1, 3)))
    assert third * 3 % P == 1
    assert _image("2^{100000}") == pow(2, 100_000, P)
    assert _image("i^2") == P - 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(a+b)(a-b)", "a^2-b^2"),
        ("\\frac{x^3-1}{x-1}", "x^2+x+1"),
        ("\\frac{1}{\\sqrt{3}-\\sqrt{2}}", "\\sqrt{3}+\\sqrt{2}"),
        ("(1+i)^{10}", "32i"),
        ("\\sum_{k=1}^{100} k^2", "338350"),
        ("\\prod_{k=1}^{5} (x+k)", "(x+1)(x+2)(x+3)(x+4)(x+5)"),
        ("\\binom{20}{7}", "77520"),
        ("100!", "100 \\cdot 99!"),
        ("7^{1000} \\bmod 13", "9"),
        ("\\gcd(84, 90)", "6"),
        ("\\lfloor -\\frac{7}{2} \\rfloor", "-4"),
        ("\\frac{\\pi}{6}", "30^\\circ"),
    ],
)
def test_equal_expressions_have_one_image_at_every_point(left, right):
    for salt in range(3):
        assert _image(left, salt) == _image(right, salt)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(a+b)^2", "a^2+b^2"),
        ("2^{100000}", "2^{100001}"),
        ("\\sqrt{2}+\\sqrt{3}", "\\sqrt{5}"),
        ("(1+i)^{10}", "-32i"),
        ("\\sum_{k=1}^{100} k^2", "338351"),
        ("10^{300}", "10^{300}+1"),
        ("7^{1000} \\bmod 13", "8"),
        ("f(1)", "f(2)"),
        ("\\pi", "e"),
        ("x_1", "x_2"),
    ],
)
def test_different_expressions_have_different_images(left, right):
    assert _image(left) != _image(right)


@pytest.mark.parametrize(
    "text", ["\\sin x", "2^n", "\\sqrt[3]{2}", "\\sqrt{211}", "|x|", "3001!"]
)
def test_what_has_no_exact_image_is_refused(text):
    with pytest.raises(Inexact):
        _image(text)


def test_a_vanishing_denominator_is_noticed():
    with pytest.raises(ZeroDivisionError):
        _image("\\frac{1}{x - x}")


def test_the_budget_ends_a_long_sum():
    node = parse_answer("\\sum_{a=1}^{200} \\sum_{b=1}^{200} (a+b)").node
    with pytest.raises(Open):
        Field(Budget(1_000)).image(node)


@pytest.mark.parametrize(
    "text",
    [
        "k^{10^{4900}}",
        "\\pi^{10^{4900}-k}",
        "(x + k)^{-10^{4900}}",
        "(2^{10^{4900}} \\bmod (10^{76} + k))",
        "(9^{4900} \\bmod (7^{4000} + k))",
        "\\gcd(9^{4900} + k, 7^{4900})",
        "\\lfloor \\frac{9^{4900}}{7^{4000} + k} \\rfloor",
    ],
)
def test_a_step_is_a_microsecond_however_long_the_numbers_are(text, seconds):
    node = parse_answer(f"\\sum_{{k=2}}^{{5000}} {text}").node
    started = seconds()
    with pytest.raises(Open):
        Field(Budget()).image(node)
    assert seconds() - started < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "|" + " \\cdot ".join(["9^{4900}"] * 100) + "|",
        "\\lfloor \\frac{1}{9^{4900}} + \\frac{1}{9^{4900} + 1} \\rfloor",
        "\\operatorname{lcm}(9^{4900}, 9^{4900} + 1)",
        "2^{" + " \\cdot ".join(["9^{4900}"] * 2) + "}",
    ],
)
def test_no_exact_number_has_more_bits_than_the_cap(text):
    with pytest.raises(Inexact):
        _image(text)


def test_powers_have_the_period_of_the_field():
    assert _image("x^{10^{4900}}") == pow(_image("x"), 10**4900 % (P - 1), P)
    assert _image("x^{-10^{4900}} x^{10^{4900}}") == 1
    assert _image("(x - x)^{10^{4900}}") == 0
    # The exponent is a multiple of P - 1, and no power of zero but the zeroth is 1.
    assert _image(f"(x - x)^{{{P - 1}}}") == 0
    assert _image(f"x^{{{P - 1}}}") == 1
    with pytest.raises(ZeroDivisionError):
        _image("(x - x)^{-10^{4900}}")
