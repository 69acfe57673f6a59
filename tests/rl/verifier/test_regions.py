"""Sets of reals: "or" unites, "and" intersects, ends are open or closed."""

import pytest

from tests.rl.verifier.pairs import wrong

_SAME = [
    ("[0,1)", "0 \\le x < 1"),
    ("(0,1]", "1 \\ge x > 0"),
    ("(-\\infty, 5)", "x < 5"),
    ("[5, \\infty)", "5 \\le x"),
    ("]0,1[", "(0,1)"),
    ("x < 1 \\text{ or } x > 3", "(-\\infty,1) \\cup (3,\\infty)"),
    ("x > 3 \\text{ or } x < 1", "x < 1 \\text{ or } x > 3"),
    ("x > 1 \\text{ and } x < 3", "(1,3)"),
    ("x > 1, x < 3", "1 < x < 3"),
    ("x > 1 \\land x \\le 3", "(1,3]"),
    ("x < 1, x > 3", "(-\\infty,1) \\cup (3,\\infty)"),
    ("x \\ne 0", "(-\\infty,0) \\cup (0,\\infty)"),
    ("x \\ne 0", "\\mathbb{R} \\setminus \\{0\\}"),
    ("\\mathbb{R}", "(-\\infty, \\infty)"),
    ("[0,1] \\cup [1,3]", "[0,3]"),
    ("[0,2] \\cap [1,3]", "[1,2]"),
    ("[2,3] \\cup [0,1]", "[0,1] \\cup [2,3]"),
    ("\\{x \\mid x > 0\\}", "(0,\\infty)"),
    ("x \\in [\\frac12, \\sqrt2)", "0.5 \\le x < \\sqrt{2}"),
    ("\\left( \\frac{1}{2}, 1 \\right]", "(0.5, 1]"),
    ("\\{x \\mid x<1 \\text{ or } x>3\\}", "(-\\infty,1) \\cup (3,\\infty)"),
    ("x \\in \\mathbb{R}, x \\ne 1", "\\mathbb{R} \\setminus \\{1\\}"),
    ("0 < x < 1, x \\in \\mathbb{R}", "(0,1)"),
    ("(-\\infty,0) \\cup \\{1\\}", "x<0 \\text{ or } x=1"),
    ("(-\\infty,0) \\cup \\{1,2\\}", "x=1 \\text{ or } x=2 \\text{ or } x<0"),
    ("[1,\\infty)", "x=1 \\text{ or } x>1"),
    ("x \\notin \\{1, 2\\}", "(-\\infty,1) \\cup (1,2) \\cup (2,\\infty)"),
]
_OTHER = [
    ("x < 3 \\text{ or } x > 1", "1 < x < 3"),
    ("x < 1 \\text{ or } x > 3", "1 < x < 3"),
    ("x > 1 \\text{ and } x < 3", "x < 1 \\text{ or } x > 3"),
    ("(0,1)", "(0,1]"),
    ("[0,1)", "(0,1]"),
    ("x > 5", "x \\ge 5"),
    ("x > 5", "x < 5"),
    ("(0,1)", "(0,2)"),
    ("[0,1) \\cup (1,3]", "[0,3]"),
    ("[0,1] \\cup [2,3]", "[0,3]"),
    ("x \\ne 0", "\\mathbb{R}"),
    ("|x| < 2", "x < 2"),
    ("(-\\infty,0) \\cup \\{1\\}", "x<0 \\text{ or } x=2"),
    ("(-\\infty,0) \\cup \\{1\\}", "x<0 \\text{ and } x=1"),
    ("(-\\infty,0) \\cup \\{1\\}", "x<0 \\text{ or } y=1"),
    ("1", "x<0 \\text{ or } x=1"),
    ("(0,1)", "\\{0,1\\}"),
    ("[0,1]", "0, 1"),
    ("x \\notin [0,1]", "[0,1]"),
    ("[0,2] \\cap [1,3]", "[0,3]"),
    ("[0,2] \\setminus [1,2]", "[0,1]"),
    ("-2x > 10", "x > -5"),
    ("(1, 3)", "1, 3"),
    ("x < 3", "3"),
    ("a < b + c", "a < c"),
    ("\\{x \\mid x<3 \\text{ or } x>1\\}", "(1,3)"),
    ("\\{x \\in [0,1] \\mid x > \\frac12\\}", "(\\frac12, \\infty)"),
    ("(0,1)", "\\{x \\in \\mathbb{Q} : 0<x<1\\}"),
    ("(0,1)", "(0,1), x \\in \\mathbb{Q}"),
    ("(1,5)", "1<n<5 \\text{ where } n \\text{ is an integer}"),
    ("(1,5)", "1<n<5 \\text{ for prime } n"),
    ("1,2,3,4", "1 \\le n \\le 4 \\text{ for prime } n"),
    ("1,2,3,4", "\\{x \\in \\mathbb{Q} \\mid 1 \\le x \\le 4\\}"),
    ("\\mathbb{R}", "x \\in \\mathbb{Q}"),
    # A part of a union whose ends have no known order.
    ("(-\\infty,a)", "(-\\infty,a) \\cup (b,\\infty)"),
    ("[a,\\infty)", "(-\\infty,-a] \\cup [a,\\infty)"),
    ("x > b", "x < a \\text{ or } x > b"),
    ("(a,b) \\cup (c,d)", "(a,b) \\cup (c,d) \\cup (e,f)"),
    ("(b,c)", "\\{a\\} \\cup (b,c)"),
]


@pytest.mark.parametrize("row", _SAME, ids=[" = ".join(row) for row in _SAME])
def test_one_set(row):
    assert wrong([row], equal=True) == []


@pytest.mark.parametrize("row", _OTHER, ids=[" / ".join(row) for row in _OTHER])
def test_two_sets(row):
    assert wrong([row], equal=False) == []


def test_the_word_between_two_half_lines_decides():
    """Literally: 3 x 3 words and marks, with their sets."""
    whole, inside = "(-\\infty, \\infty)", "(1, 3)"
    outside = "(-\\infty,1) \\cup (3,\\infty)"
    rows = {
        "x < 3 \\text{ or } x > 1": whole,
        "x < 3 \\text{ and } x > 1": inside,
        "x < 3, x > 1": inside,
        "x < 1 \\text{ or } x > 3": outside,
        "x < 1, x > 3": outside,
    }
    for text, meant in rows.items():
        for other in (whole, inside, outside):
            assert wrong([(text, other)], equal=other == meant) == [], (text, other)
