"""Quotients of polynomials in names and roots are compared exactly."""

import pytest

from rl.verifier import judge
from rl.verifier.equal.polynomials import identical, proportion
from rl.verifier.parse.answers import parse_answer
from rl.verifier.parse.budget import Budget
from tests.rl.verifier.pairs import Row, labelled


def _identical(left, right):
    nodes = [parse_answer(text).node for text in (left, right)]
    return identical(*nodes, Budget())


_ROWS: list[Row] = [
    ("1", [r"\frac{x}{x+1} + \frac{1}{x+1}"], ["i^2"]),
    (r"2\sqrt2", [r"\sqrt{8}"], [r"\sqrt{12}"]),
    (r"\sqrt6", [r"\sqrt2\sqrt3"], []),
    (r"\frac{1}{1+\sqrt2}", [r"\sqrt2-1"], []),
    (r"\sqrt[3]{16}", [r"2\sqrt[3]{2}"], []),
    (r"\sqrt{\frac{x}{2}}", [r"\frac{\sqrt{2x}}{2}"], []),
    ("(x^2-2)^{5/3}", [r"(x^2-2)\sqrt[3]{x^2-2}^2"], []),
    ("i(2-i)", ["1+2i"], []),
    (r"\sin\frac{x}{x^2}", [r"\sin\frac1x"], []),
    (r"\tan x", [r"\frac{\sin x}{\cos x}"], []),
    (r"120^\circ", [r"\frac{2\pi}{3}"], []),
    (r"\frac{n!}{(n-2)!}", ["n(n-1)"], ["n(n+1)"]),
    (r"\frac{(n-1)!}{k!} n", [r"\frac{n!}{k!}"], []),
    ("x", [], [r"\sqrt{x^2}", r"(x+\sqrt{a+b+c+d+e+f+g})^{24}"]),
    (r"\sqrt[3]{-8}", [], ["2"]),
    (r"\frac10", [], [r"\frac20"]),
    (r"\frac{1}{x-x}", [], [r"\frac{2}{x-x}"]),
    (r"\frac{x+1}{x+2}", [], [r"\frac{x+2}{x+1}"]),
    ("n!", [], ["(2n)!"]),
    (r"\infty", [], [r"2\infty"]),
]


@pytest.mark.parametrize(("left", "right", "same"), labelled(_ROWS))
def test_the_same_quotient(left, right, same):
    """Those that are too large are not the same."""
    assert _identical(left, right) is _identical(right, left) is same


def test_an_identity_needs_a_point_at_which_both_sides_are_defined():
    assert not judge(r"\boxed{\frac{1}{\sqrt4-2}}", r"\frac{2}{\sqrt4-2}").correct
    assert not judge(r"\boxed{\frac{x}{\sqrt{-1-x^2}}}", r"\frac{x}{0x}").correct


@pytest.mark.parametrize(
    ("left", "right", "factor"),
    [
        ("2x+2y-6", "x+y-3", 2),
        ("3-x", "x-3", -1),
        ("x^2-y^2-1", "x^2+y^2-1", 0),
        ("x-y", "x+y", 0),
        ("0", "x", None),
        (r"\sin^2 x-1", r"-\cos^2 x", None),
        ("1/x", "2/x", None),
    ],
)
def test_a_constant_factor(left, right, factor):
    nodes = [parse_answer(text).node for text in (left, right)]
    assert proportion(*nodes, Budget()) == factor
