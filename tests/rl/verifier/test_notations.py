"""Right answers in other usual notations, and the neighbours that are other answers."""

import pytest

from rl.verifier import is_equivalent, judge
from rl.verifier.parse.tree import time_of_day
from tests.rl.verifier.pairs import misjudged


def test_a_unit_that_names_nothing_is_no_fault_of_the_verifier():
    for answer in ("12 (units)", "12 (square units)", "12 (exactly)"):
        assert judge(rf"\boxed{{{answer}}}", "12", "What is the area?").correct


def test_a_scale_of_temperature_may_be_asked_for():
    problem = "What is the temperature in degrees Celsius?"
    assert judge(r"\boxed{25^\circ C}", "25", problem).correct
    assert not judge(r"\boxed{25 \text{ K}}", "25", problem).correct


def test_letters_of_options_are_a_set():
    spellings = [
        "BCD", "B, C, D", "D, B, C", "(B),(C),(D)", "(B)(C)(D)", r"\text{B, C and D}",
        r"B \text{ and } C \text{ and } D", r"\{B, C, D\}",
        r"\text{(B)}, \text{(C)}, \text{(D)}", r"\text{Options } B, C, D",
    ]  # fmt: skip
    others = ["B, C", "B, C, D, E", "B, C, E", "B", "BDC"]
    assert misjudged([(gold, spellings[:4], others) for gold in spellings]) == []
    assert not is_equivalent("(A, B)", "A, B")


def test_the_problem_tells_whether_a_percent_sign_may_be_left_out():
    share, percent = "What is the probability?", "What percent is it?"
    assert judge(r"\boxed{42}", r"42\%", percent).correct
    assert judge(r"\boxed{42\%}", "42", percent).correct
    assert judge(r"\boxed{0.42}", r"42\%", share).correct
    assert judge(r"\boxed{42\%}", "0.42", share).correct
    assert not judge(r"\boxed{42}", r"42\%", share).correct
    assert not judge(r"\boxed{42\%}", "42", "How many are there?").correct


def test_no_two_full_hours_are_one():
    hours = [
        rf"{hour}:00 \text{{ {half}}}" for half in ("AM", "PM") for hour in range(1, 13)
    ]
    rows = [(hour, [], hours[i + 1 :]) for i, hour in enumerate(hours)]
    assert misjudged(rows) == []


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
