"""Grades: what completions say of a problem, of its gold, and in its row."""

import dataclasses

import pytest

from rl.types import Problem
from tests.rl.examples import make_scored
from tools.curation.row import Row
from tools.curation.screen import screen
from tools.grade import Grade, add_grades, make_grades

PROBLEM = Problem(id="a", problem="?", answers=("2",))
GRADE = Grade(
    samples=4, correct=1, unparsable=0, truncated=0, majority="3",
    agreement=0.5, against_gold=True,
)  # fmt: skip


def rated(correct, samples=16):
    """Returns the row of a problem that `correct` completions solve."""
    grade = dataclasses.replace(GRADE, samples=samples, correct=correct)
    row = {"id": "a"}
    add_grades([row], {"a": grade}, None)
    return row


def test_a_majority_against_the_gold_is_told():
    answers = ["3", None, "3", "2"]
    ends = ["stop", "length", "stop", "stop"]
    scored = make_scored(PROBLEM, answers, ends=ends)
    (grade,) = make_grades(scored, {"a": [0, None, 0, 1]}).values()
    assert grade == Grade(
        samples=4, correct=1, unparsable=1, truncated=1, majority="3",
        agreement=0.5, against_gold=True,
    )  # fmt: skip
    assert rated(grade.correct, grade.samples)["solve_rate"] == 0.25


def test_where_nobody_answers_there_is_no_majority():
    (grade,) = make_grades(
        make_scored(PROBLEM, [None, None]), {"a": [None, None]}
    ).values()
    assert (grade.majority, grade.agreement, grade.against_gold) == (None, 0.0, False)
    assert grade.unparsable == grade.samples == 2


def test_rows_get_rates_and_levels():
    rows = [{"id": f"p{i}", "level": 9, "level_source": "old"} for i in range(5)]
    grades = {f"p{i}": dataclasses.replace(GRADE, correct=i) for i in range(5)}
    add_grades(rows, grades, None)
    assert (rows[0]["level"], rows[0]["level_source"]) == (9, "old")
    add_grades(rows, grades, "grade:m")
    assert [r["level"] for r in rows] == [5, 4, 3, 2, 1]
    assert {r["level_source"] for r in rows} == {"grade:m"}
    assert rows[1]["solve_rate"] == 0.25 and rows[1]["graded"]["majority"] == "3"


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
    graded = dataclasses.asdict(dataclasses.replace(GRADE, **changes))
    row = Row(
        id="a",
        problem="What is the sum of one and one?",
        answers=("2",),
        meta={"graded": graded},
    )
    assert set(screen(row).reasons) == reason
