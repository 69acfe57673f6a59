"""Times of day and ratios."""

import pytest

from rl.verifier import is_equivalent
from rl.verifier.parse.tree import time_of_day
from tests.rl.verifier.pairs import wrong

_TIMES = [
    ("8:00 \\text{ AM}", "8 \\text{ AM}"),
    ("8:00 \\text{ AM}", "08:00 \\text{ a.m.}"),
    ("8:00 \\text{ AM}", "8\\!:\\!00\\text{ am}"),
    ("8:05", "8:05 \\text{ a.m.}"),
    ("12:00 \\text{ AM}", "0:00"),
    ("5 \\text{ o'clock}", "5:00"),
    ("10:30", "10:30 \\text{ am}"),
]
_OTHER_TIMES = [
    ("8:00 \\text{ AM}", "9:00 \\text{ AM}"),
    ("8:00 \\text{ AM}", "4:00 \\text{ AM}"),
    ("3:00", "3:05"),
    ("2:30", "1:15"),
    ("10:10", "1:1"),
    ("3:30 \\text{ PM}", "3:15 \\text{ PM}"),
    ("3:30 \\text{ PM}", "3.5"),
    ("15:30", "3:30 \\text{ AM}"),
    ("8:00 \\text{ AM}", "8"),
    ("11:45 \\text{ a.m.}", "11.45"),
]
_RATIOS = [("3:4", "6:8"), ("3:4", "\\frac34"), ("1:2:3", "2:4:6"), ("2:1", "2")]
_OTHER_RATIOS = [("3:4", "4:3"), ("1:2:3", "1:2:4"), ("3:4", "0:0"), ("1:2", "1:2:3")]


@pytest.mark.parametrize("rows", [_TIMES, _RATIOS], ids=["times", "ratios"])
def test_the_same(rows):
    assert wrong(rows, equal=True) == []


@pytest.mark.parametrize("rows", [_OTHER_TIMES, _OTHER_RATIOS], ids=["times", "ratios"])
def test_another(rows):
    assert wrong(rows, equal=False) == []


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
