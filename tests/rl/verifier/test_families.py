"""Answers with a free integer: what one side says of its letter is not enough."""

import pytest

from rl.verifier import is_equivalent
from tests.rl.verifier.pairs import wrong


def test_all_integers_are_no_other_numbers():
    every = "\\pi k, k\\in\\mathbb{Z}"
    for kind in ("k\\in\\mathbb{R}", "k\\in\\mathbb{N}", "\\text{ for even }k"):
        assert not is_equivalent(every, f"\\pi k, {kind}")
    assert is_equivalent(every, "\\pi k")


def test_an_answer_does_not_make_the_golds_variable_an_integer():
    assert wrong(_ON_ONE_SIDES_WORD, equal=False) == []


_ON_ONE_SIDES_WORD = [
    ("n-1", "n, n\\in\\mathbb{Z}"),
    ("n+1", "k+1, k\\in\\mathbb{Z}"),
    ("n", "-n, n\\in\\mathbb{Z}"),
    ("k+4", "k, k\\in\\mathbb{Z}"),
    ("n+100", "-n \\text{ for } n \\in \\mathbb{Z}"),
    ("2n+1", "2n-1 \\text{ where } n \\text{ is an integer}"),
    ("x=2n", "x=2n+2, n\\in\\mathbb{Z}"),
    ("f(n)=n", "f(n)=n+1, n\\in\\mathbb{Z}"),
    ("180^\\circ(n-1)", "180^\\circ n, n\\in\\mathbb{Z}"),
]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("2n+1, n\\in\\mathbb{Z}", "2k-1, k\\in\\mathbb{Z}", True),
        ("2n+1, n\\in\\mathbb{Z}", "1-2n \\text{ for any integer } n", True),
        ("2n+1, n\\in\\mathbb{Z}", "2n+2, n\\in\\mathbb{Z}", False),
        # Not every integer, so that no step leads from one to the other.
        ("2n+1, n\\in\\mathbb{N}", "2n-1, n\\in\\mathbb{N}", False),
        ("n+1 \\text{ for } n \\ge 2", "n \\text{ for } n \\ge 2", False),
        ("n \\text{ for positive integers } n", "-n, n\\in\\mathbb{Z}", False),
    ],
)
def test_what_both_sides_declare_is_a_family(left, right, equal):
    assert wrong([(left, right)], equal=equal) == []


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("k\\pi", "n\\pi", True),
        ("\\frac{\\pi}{4}+k\\pi", "\\frac{5\\pi}{4}+n\\pi, n\\in\\mathbb{Z}", True),
        ("\\frac{\\pi}{4}+k\\pi", "\\frac{\\pi}{4}-n\\pi", True),
        ("\\frac{\\pi}{4}+k\\pi", "\\frac{\\pi}{4}+2n\\pi", False),
        ("x=(-1)^k\\frac{\\pi}{6}+k\\pi", "x=(-1)^n\\frac{\\pi}{6}+n\\pi", True),
        ("2\\pi k \\pm \\frac{\\pi}{3}", "\\pm\\frac{\\pi}{3}+2n\\pi", True),
        ("45^\\circ+180^\\circ k", "225^\\circ+180^\\circ n", True),
        ("(45+180k)^\\circ", "(225+180n)^\\circ", True),
        ("45^\\circ+180^\\circ k", "225^\\circ+360^\\circ n", False),
        ("(2k\\pi, 2k\\pi+\\pi)", "(2n\\pi, 2n\\pi+\\pi)", True),
        # No period: an area, a volume, a length.
        ("\\pi k^2", "\\pi n^2", False),
        ("2\\pi l", "2\\pi k", False),
        ("\\alpha + 2k\\pi", "\\alpha + 2n\\pi", True),
        ("k + \\pi", "n + \\pi", False),
        ("n\\pi x", "k\\pi x", False),
        # The angles of a polygon are no multiples of anything.
        ("(n-2)\\pi", "(n-1)\\pi", False),
        ("180^\\circ(n-2)", "180^\\circ n", False),
    ],
)
def test_multiples_of_a_period_are_a_family_without_a_word(left, right, equal):
    assert wrong([(left, right)], equal=equal) == []


def test_the_parameter_is_one_for_all_coordinates():
    assert is_equivalent("(k\\pi, 2k\\pi)", "(n\\pi, 2n\\pi)")
    assert not is_equivalent("(k\\pi, 2k\\pi)", "(k\\pi + \\pi, 2k\\pi)")


def test_that_in_which_several_names_are_said_is_a_parameter():
    gold = "(x, y) = (2 + 3t, 1 - 5t)"
    assert is_equivalent(gold, "(2 + 3s, 1 - 5s) \\text{ for some integer } s")
    assert is_equivalent(gold, "(x, y) = (2 + 3s, 1 - 5s)")
    assert not is_equivalent(gold, "(2 + 3s, 1 - 5s)")
    assert not is_equivalent(gold, "(5 + 3s, 1 - 5s) \\text{ for some integer } s")
    assert not is_equivalent("(n, n+1)", "(k, k+1), k\\in\\mathbb{Z}")
