"""Right answers in other usual notations, and the neighbours that are other answers."""

import pytest

from rl.verifier import is_equivalent, judge
from rl.verifier.parse.tree import time_of_day
from tests.rl.verifier.pairs import wrong


def test_a_unit_that_names_nothing_is_no_fault_of_the_verifier():
    for answer in ("12 (units)", "12 (square units)", "12 (exactly)"):
        assert judge(f"\\boxed{{{answer}}}", "12", "What is the area?").correct


def test_a_scale_of_temperature_is_a_unit():
    spellings = [
        "25^\\circ C",
        "25^\\circ\\text{C}",
        "25^{\\circ}\\mathrm C",
        "25°C",
        "25 \\text{ degrees Celsius}",
        "25",
        "25^\\circ",
    ]
    rows = [("25^{\\circ}\\mathrm{C}", text) for text in spellings]
    assert wrong(rows, equal=True) == []
    rows = [(text, "25^\\circ F") for text in spellings[:5]]
    assert wrong([*rows, ("25^\\circ C", "-25^\\circ C")], equal=False) == []
    problem = "What is the temperature in degrees Celsius?"
    assert judge("\\boxed{25^\\circ C}", "25", problem).correct
    assert not judge("\\boxed{25 \\text{ K}}", "25", problem).correct


def test_letters_of_options_are_a_set():
    spellings = [
        "BCD",
        "B, C, D",
        "D, B, C",
        "(B),(C),(D)",
        "(B)(C)(D)",
        "\\text{B, C and D}",
        "B \\text{ and } C \\text{ and } D",
        "\\{B, C, D\\}",
        "\\text{(B)}, \\text{(C)}, \\text{(D)}",
        "\\text{Options } B, C, D",
    ]
    rows = [(gold, text) for gold in spellings for text in spellings[:4]]
    assert wrong(rows, equal=True) == []
    others = ["B, C", "B, C, D, E", "B, C, E", "B", "BDC"]
    rows = [(gold, text) for gold in spellings for text in others]
    assert wrong([*rows, ("(A, B)", "A, B")], equal=False) == []


def test_an_option_that_says_another_letter_is_neither():
    for answer in ("(D) C", "D. C", r"\textbf{(D)}\ C"):
        assert not is_equivalent(answer, "C") and not is_equivalent(answer, "D")
        assert is_equivalent(answer, "(D) C")
    for value in ("x", "12", "Q", "I"):
        assert is_equivalent(f"(D) {value}", "D"), value
        assert is_equivalent(f"(D) {value}", value), value


def test_and_is_not_or_but_in_a_list_of_values():
    assert not is_equivalent("x=0 \\text{ or } y=0", "x=0 \\text{ and } y=0")
    assert not is_equivalent("a>0 \\text{ and } b>0", "a>0 \\text{ or } b>0")
    assert not is_equivalent("x=0 \\text{ or } y=0, and", "x=0 \\text{ and } y=0")
    assert not is_equivalent("x<5 \\text{ or } x>1, and", "(1,5)")
    assert not is_equivalent(r"\text{Alice or Bob}", r"\text{Alice and Bob}")
    assert is_equivalent(r"\text{Bob and Alice}", r"\text{Alice and Bob}")
    assert is_equivalent("x=0 \\text{ or } x=1", "x=0 \\text{ and } x=1")
    assert is_equivalent("1 \\text{ and } 2", "1 \\text{ or } 2")
    assert is_equivalent("x=1, y=2", "x=1 \\text{ and } y=2")
    assert is_equivalent("x=2 \\text{ and } 3x-4y=9", "x=2 \\text{ or } 3x-4y=9")


def test_a_union_by_a_letter_and_a_unit_behind_pi():
    assert is_equivalent(r"(-\infty,1) U (2,\infty)", r"(-\infty,1)\cup(2,\infty)")
    assert not is_equivalent(r"(-\infty,1) U (3,\infty)", r"(-\infty,1)\cup(2,\infty)")
    assert is_equivalent(r"12\pi\text{ in}^3", r"12\pi")
    assert not is_equivalent(r"12\pi\text{ in}^3", r"12\pi\text{ in}^2")


def test_one_vector_has_many_notations():
    column = "\\begin{pmatrix} 3 \\\\ 4 \\end{pmatrix}"
    spellings = ["(3, 4)", "\\langle 3, 4 \\rangle", "[3, 4]", "P(3, 4)"]
    assert wrong([(column, text) for text in spellings[:3]], equal=True) == []
    rows = [(text, "(3, 4)") for text in spellings if text != "[3, 4]"]
    assert wrong(rows, equal=True) == []
    rows = [
        (column, "(4, 3)"),
        (column, "[3, 4)"),
        (column, "(3, 4, 0)"),
        (column, "3, 4"),
        (column, "\\begin{pmatrix} 3 & 4 \\end{pmatrix}"),
        ("(3, 4)", "[3, 4]"),
    ]
    assert wrong(rows, equal=False) == []


def test_the_problem_tells_whether_a_percent_sign_may_be_left_out():
    share, percent = "What is the probability?", "What percent is it?"
    assert judge("\\boxed{42}", "42\\%", percent).correct
    assert judge("\\boxed{42\\%}", "42", percent).correct
    assert judge("\\boxed{0.42}", "42\\%", share).correct
    assert judge("\\boxed{42\\%}", "0.42", share).correct
    assert not judge("\\boxed{42}", "42\\%", share).correct
    assert not judge("\\boxed{42\\%}", "42", "How many are there?").correct
    assert wrong([("-25\\%", "-25"), ("-5^\\circ", "-5")], equal=True) == []


def test_a_sign_before_several_coordinates_is_that_of_all():
    both = "(1,2), (-1,-2)"
    vectors = (
        "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
        "\\begin{pmatrix}-1\\\\-2\\end{pmatrix}",
    )
    rows = []
    assert wrong(rows, equal=True) == []
    rows = [
        ("(1,2)", "\\pm(1,2)"),
        (f"{both}, (1,-2), (-1,2)", "\\pm(1,2)"),
        ("(1,2)", "-(1,2)"),
        ("(-1,2)", "-(1,2)"),
        (
            f"{vectors[0]}, \\begin{{pmatrix}}1\\\\-2\\end{{pmatrix}}",
            f"\\pm{vectors[0]}",
        ),
    ]
    assert wrong(rows, equal=False) == []


def test_units_and_currencies_in_any_dress():
    for answer in ("5\\mathrm{\\,cm}", "5 {\\rm ~cm}", "5[cm]", "5\\text{\\ cm}"):
        assert wrong([("5 \\text{ cm}", answer)], equal=True) == []
        assert wrong([("5 \\text{ kg}", answer)], equal=False) == []
    rows = [("\\text{Rs. }500"), ("US\\$500"), ("\\pounds500")]
    assert wrong([("500", row) for row in rows], equal=True) == []
    assert (
        wrong([("5 \\text{ cents}", "5¢"), ("12", "\\text{a dozen}")], equal=True) == []
    )


def test_no_two_full_hours_are_one():
    hours = [
        f"{hour}:00 \\text{{ {half}}}" for half in ("AM", "PM") for hour in range(1, 13)
    ]
    rows = [(a, b) for a in hours for b in hours if a != b]
    assert wrong(rows, equal=False) == []


@pytest.mark.parametrize(
    ("hours", "minutes", "clock"),
    [
        (12, 0, (0, None)),
        (15, 30, (210, "pm")),
        (0, 10, (10, "am")),
        (3, 5, (185, None)),
        (25, 0, None),
        (3, 60, None),
    ],
)
def test_time_of_day(hours, minutes, clock):
    found = time_of_day(hours, minutes)
    assert (found and (found.minutes, found.half)) == clock


@pytest.mark.parametrize("time", ["15:05", "15:30", "15"])
def test_an_hour_of_the_afternoon_is_not_in_the_morning(time):
    _, colon, minutes = time.partition(":")
    assert is_equivalent(f"{time} pm", f"3{colon}{minutes} pm")
    assert not is_equivalent(f"{time} am", f"3{colon}{minutes} am")
    assert not is_equivalent(f"{time} am", f"3{colon}{minutes} pm")
