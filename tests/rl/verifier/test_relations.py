"""What a relation says: every side that says a value must say the same one."""

import pytest

from rl.verifier import is_equivalent
from tests.rl.verifier.pairs import wrong

_FIVE = (
    "6 = x = 5", "6 = 5 = 5", "7 = 5 = a", "a = 7 = 5", "7 = a = b = 5", "x = 5 = 6",
    "\\infty = x = 5", "\\sin 7 = x = 5", "2x = y = 5", "(1,2) = x = 5", "7 = a = 5",
    "7 \\approx x = 5", "[0,1] = x = 5", "x = 5 = (1,2)", "x = 2x + 1 = 5", "x \\in 5",
)  # fmt: skip
_PAIR = (
    "7 = (1,2)", "(3,4) = (1,2)", "7 \\approx (1,2)", "(1,2) \\approx 7",
    "(x,y) = (3,4) = (1,2)", "(x,3) = (1,2)", "(x,y,z) = (1,2)", "2x = (1,2)",
    "x + y = (1,2)", "P = (3,4) = (1,2)", "(1,2) = 7",
)  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        ("5", _FIVE),
        ("(1,2)", _PAIR),
        ("\\{1,2\\}", ("\\{3\\} = \\{1,2\\}", "5 = \\{1,2\\}", "3 \\in \\{1,2\\}")),
        ("1,2", ("5 = \\{1,2\\}",)),
        ("[0,1]", ("2 = [0,1]", "[3,4] = [0,1]", "5 \\in [0,1]", "2x \\in [0,1]")),
        ("(1,\\pm 2)", ("(3,4) = (1,\\pm 2)",)),
        ("12 \\text{ cm}", ("x = 11 \\text{ cm} = 12 \\text{ cm}",)),
    ],
)
def test_a_side_that_says_something_else_is_no_dress(gold, answers):
    assert wrong([(gold, answer) for answer in answers], equal=False) == []


def test_a_membership_says_nothing_without_a_name():
    assert is_equivalent("x \\in [0,1]", "[0,1]")
    assert not is_equivalent("\\frac12 \\in [0,1]", "[0,1]")


def test_the_name_in_a_set_builder_is_bound():
    assert is_equivalent("\\{x : x > 2\\}", "\\{y : y > 2\\}")
    assert not is_equivalent("\\{x : x > 2\\}", "\\{y : y > 3\\}")
    assert not is_equivalent("x > 2", "y > 2")


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ("Total cost", True), ("Number of times he wins", True), ("Third side", True),
        ("Remainder", True), ("Least value", True), ("Area of the square", True),
        ("Half-life", True), ("Root of the equation", True), ("First term", True),
        ("Twice the answer", False), ("Half of the answer", False),
        ("Answer minus 1", False), ("ten times the answer", False),
        ("Answer squared", False), ("the square of the answer", False),
        ("Square root of the answer", False), ("third of the answer", False),
        ("Negative of the answer", False), ("Answer divided by two", False),
        ("one more than the answer", False), ("Price reduced by ten", False),
        ("Wrong answer", False),
    ],
)  # fmt: skip
def test_a_label_that_calculates_names_nothing(label, names):
    rows = [("5", f"\\text{{{label}}} = 5"), ("5", f"\\text{{{label}: }} 5")]
    assert wrong(rows, equal=names) == []
