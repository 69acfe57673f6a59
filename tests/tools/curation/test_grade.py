"""Grades: what completions say of a problem, of its gold, and in its row."""

import pytest

from rl.types import Problem
from tests.rl.examples import make_scored
from tools.curation.row import Row
from tools.curation.screen import screen
from tools.grade import grade

PROBLEM = Problem(id="a", problem="?", answers=("2",))
GRADE = {
    "samples": 4, "correct": 1, "unparsable": 1, "truncated": 1, "majority": "3",
    "agreement": 0.5, "against_gold": True,
}  # fmt: skip


def test_a_majority_against_the_gold_is_told():
    ends = ["stop", "length", "stop", "stop"]
    scored = make_scored(PROBLEM, ["3", None, "3", "2"], ends=ends)
    assert grade(scored, ["3", None, "3", "2"]) == GRADE


def test_where_nobody_answers_there_is_no_majority():
    found = grade(make_scored(PROBLEM, [None, None]), [None, None])
    assert (found["majority"], found["agreement"]) == (None, 0.0)
    assert found["unparsable"] == found["samples"] == 2 and not found["against_gold"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agreement": 0.75}, {"majority_against_gold"}),
        ({"agreement": 0.5}, set()),
        ({"agreement": 1.0, "against_gold": False}, set()),
        ({"agreement": 1.0, "samples": 3}, set()),
        (
            {"unparsable": 4, "agreement": 0.0, "against_gold": False},
            {"majority_against_gold"},
        ),
    ],
)
def test_curation_reads_what_a_grading_says(changes, reason):
    row = Row(
        id="a",
        problem="What is the sum of one and one?",
        answers=("2",),
        meta={"graded": GRADE | {"unparsable": 0} | changes},
    )
    assert set(screen(row).reasons) == reason
