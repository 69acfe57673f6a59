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


_RIGHT = [
    ("3", "x = \\frac{6}{2} = 3"),
    ("5", "\\frac{10}{2} = x = 5"),
    ("5", "5 = x = y"),
    ("5", "2+3 = 5"),
    ("3", "V = \\pi r^2 h = 3"),
    ("3", "3 = \\pi r^2 h = V"),
    ("-i", "i^{15} = i^3 = -i"),
    ("\\frac13", "0.333 \\approx x = \\frac13"),
    ("135^\\circ", "\\theta = 180 - 45 = 135^\\circ"),
    ("12 \\text{ cm}", "x = 3 \\cdot 4 = 12 \\text{ cm}"),
    ("5 \\text{ m}", "x = 5 \\text{ m} = 500 \\text{ cm}"),
    ("5\\sqrt2 \\text{ m}", "x = 5\\sqrt2 \\text{ m} \\approx 7.07 \\text{ m}"),
    ("(1,2)", "(x,y) = (1,2)"),
    ("(1,2)", "(1,2) = (x,y)"),
    ("(1,2)", "(x,y) = (1,\\frac42) = (1,2)"),
    ("(1,2), (2,1)", "(x,y) \\in \\{(1,2), (2,1)\\}"),
    ("\\{1,2\\}", "A \\cup B = \\{1,2\\}"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}",
     "\\begin{pmatrix}x\\\\y\\end{pmatrix} = \\begin{pmatrix}1\\\\2\\end{pmatrix}"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
     "A^2 = \\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
     "A^{-1} = \\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"),
]  # fmt: skip


def test_a_chain_that_says_one_value_is_that_value():
    assert wrong(_RIGHT, equal=True) == []


def test_a_membership_says_nothing_without_a_name():
    assert is_equivalent("x \\in [0,1]", "[0,1]")
    assert not is_equivalent("\\frac12 \\in [0,1]", "[0,1]")


_SWAPPED = [
    ("P(A)=\\frac12, P(B)=\\frac13", "P(A)=\\frac13, P(B)=\\frac12"),
    ("f(a)=1, f(b)=2", "f(a)=2, f(b)=1"),
    ("f(x)=x+1, g(x)=x-1", "g(x)=x+1, f(x)=x-1"),
    ("E(X)=4, V(X)=52", "E(X)=52, V(X)=4"),
    ("\\text{width}=3, \\text{length}=5", "\\text{width}=5, \\text{length}=3"),
    ("\\text{Alice: }3, \\text{Bob: }5", "\\text{Alice: }5, \\text{Bob: }3"),
    ("\\text{Re}=3, \\text{Im}=5", "\\text{Re}=5, \\text{Im}=3"),
    ("x=3, \\text{length}=5", "\\text{width}=5, \\text{length}=3"),
]
_OTHER_NAMES = [
    ("f(2)=5", "f(3)=5"),
    ("f(1)=2", "f(x)=2"),
    ("f'(x)=2x", "f''(x)=2x"),
    ("f^{-1}(x)=2x", "f(x)=2x"),
    ("f(x)=2x", "g(x)=2x"),
    ("f(x)=2x", "f(x,y)=2x"),
    ("f_x=2x", "f_y=2y"),
    ("a_n=3n-1", "b_n=3n-1"),
    ("\\text{width}=3", "\\text{length}=3"),
    ("\\text{width}>3", "\\text{length}>3"),
    ("x>1, x<3", "x>1, y<3"),
    # Another name would replace the free one.
    ("f(x)=2x", "f(t)=t+x"),
    ("f(x,y)=x-y", "f(y,x)=x-y"),
    ("f(x,y)=x+y", "f(t,t)=t+t"),
]


def test_a_labels_name_counts():
    assert wrong(_SWAPPED + _OTHER_NAMES, equal=False) == []


def test_labels_in_words_may_come_in_any_order():
    rows = [("\\text{width}=3, \\text{length}=5", "\\text{length}=5, \\text{width}=3")]
    assert wrong(rows, equal=True) == []


def test_labelled_coordinates_stand_in_the_order_of_their_names():
    rows = [
        ("(1,2)", "x=1, y=2"),
        ("(26,11,0,16)", "x=26, y=11, z=0, w=16"),
        ("(1,2,3,4)", "w=1, x=2, y=3, z=4"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("(2,1)", "y=2, x=1"),
        ("(2,1)", "b=2, a=1"),
        ("(1,2,3)", "z=1, y=2, x=3"),
        ("(26,11,0,16)", "x=26, y=11, w=0, z=16"),
        ("(1,2)", "x=1 \\text{ or } y=2"),
    ]
    assert wrong(rows, equal=False) == []


def test_two_forms_of_one_value_are_two_answers():
    rows = [
        ("\\frac13", "\\frac13 \\text{ or } 0.35"),
        ("1", "1 \\text{ or } -1"),
        ("5", "x=5 \\text{ or } y=5"),
        ("\\frac12", "\\frac12 \\text{ or } 0.5"),
        ("\\frac12", "50\\% \\text{ or } 50"),
        ("5, 5", "5"),
    ]
    assert wrong(rows, equal=False) == []


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
