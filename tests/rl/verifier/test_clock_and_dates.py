"""Times of day and dates are no ratios and no quotients."""

import pytest

from rl.verifier.parse.normalize import TEXT_COMMANDS
from rl.verifier.parse.tree import time_of_day
from tests.rl.verifier.pairs import wrong

_TIMES = [
    ("8:00 \\text{ AM}", "8 \\text{ AM}"),
    ("8:00 \\text{ AM}", "08:00 \\text{ a.m.}"),
    ("8:00 \\text{ AM}", "8\\!:\\!00\\text{ am}"),
    ("8:05", "8:05 \\text{ a.m.}"),
    ("3:30 \\text{ PM}", "15:30"),
    ("3:30 \\text{ PM}", "3:30"),
    ("3:30 \\text{ p.m.}", "3:30 \\text{ in the afternoon}"),
    ("12:00 \\text{ PM}", "\\text{noon}"),
    ("12:00 \\text{ AM}", "\\text{midnight}"),
    ("12:00 \\text{ AM}", "0:00"),
    ("5 \\text{ o'clock}", "5:00"),
    ("10:30", "10:30 \\text{ am}"),
]
_OTHER_TIMES = [
    ("8:00 \\text{ AM}", "9:00 \\text{ AM}"),
    ("8:00 \\text{ AM}", "8:00 \\text{ PM}"),
    ("8:00 \\text{ AM}", "4:00 \\text{ AM}"),
    ("3:00", "6:00"),
    ("3:00", "3:05"),
    ("2:30", "1:15"),
    ("10:10", "1:1"),
    ("3:30 \\text{ PM}", "3:15 \\text{ PM}"),
    ("3:30 \\text{ PM}", "3.5"),
    ("15:30", "3:30 \\text{ AM}"),
    ("8:00 \\text{ AM}", "8"),
    ("11:45 \\text{ a.m.}", "11.45"),
    ("\\text{noon}", "\\text{midnight}"),
    ("12:00 \\text{ noon}", "12:00 \\text{ midnight}"),
]
_RATIOS = [("3:4", "6:8"), ("3:4", "\\frac34"), ("1:2:3", "2:4:6"), ("2:1", "2")]
_OTHER_RATIOS = [("3:4", "4:3"), ("1:2:3", "1:2:4"), ("3:4", "0:0"), ("1:2", "1:2:3")]
_DATES = [
    ("May 5", "5 May"),
    ("May 5", "May 5th"),
    ("May 5", "the 5th of May"),
    ("\\text{May 5, 2020}", "May 5, 2020"),
    ("May 5, 2020", "2020-05-05"),
    ("May 5, 2020", "5/5/2020"),
    ("December 31", "Dec. 31"),
    ("May 5, 2020", "May 5"),
]
_OTHER_DATES = [
    ("May 5", "May 6"),
    ("May 5", "June 5"),
    ("May 5, 2020", "May 5, 2021"),
    ("1/2/2020", "1/2/2021"),
    ("1/2/2020", "\\frac{1}{4040}"),
    ("2020-01-02", "2017"),
    ("\\text{Monday}", "\\text{Tuesday}"),
]


@pytest.mark.parametrize(
    "rows", [_TIMES, _RATIOS, _DATES], ids=["times", "ratios", "dates"]
)
def test_the_same(rows):
    assert wrong(rows, equal=True) == []


@pytest.mark.parametrize(
    "rows",
    [_OTHER_TIMES, _OTHER_RATIOS, _OTHER_DATES],
    ids=["times", "ratios", "dates"],
)
def test_another(rows):
    assert wrong(rows, equal=False) == []


def test_no_two_full_hours_are_one():
    hours = [
        f"{hour}:00 \\text{{ {half}}}" for half in ("AM", "PM") for hour in range(1, 13)
    ]
    rows = [(a, b) for a in hours for b in hours if a != b]
    assert wrong(rows, equal=False) == []


@pytest.mark.parametrize(
    ("hours", "minutes", "half", "clock"),
    [
        (8, 0, "am", (480, "am")),
        (12, 0, "pm", (0, "pm")),
        (12, 0, "am", (0, "am")),
        (15, 30, None, (210, "pm")),
        (0, 10, None, (10, "am")),
        (3, 5, None, (185, None)),
        (25, 0, None, None),
        (3, 60, None, None),
    ],
)
def test_time_of_day(hours, minutes, half, clock):
    found = time_of_day(hours, minutes, half)
    assert (found and (found.minutes, found.half)) == clock


@pytest.mark.parametrize("command", sorted(TEXT_COMMANDS - {"rm"}))
def test_a_date_in_any_command_for_text(command):
    may = "\\text{May 5}"
    assert wrong([(may, f"\\{command}{{May 5}}")], equal=True) == []
    assert wrong([(may, f"\\{command}{{May 6}}")], equal=False) == []
