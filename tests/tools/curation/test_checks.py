"""Each check on rows that must go and on look-alikes that must stay."""

import json
import pathlib

import pytest

from tools.curation.evidence import Evidence
from tools.curation.golds import unverifiable_answer
from tools.curation.row import Row
from tools.curation.screen import screen


def reasons(problem: str, answer: str = "7", **fields) -> set[str]:
    """What the checks say of a row, apart from the verifier's own."""
    row = Row(id="a", problem=problem, answers=(answer,) if answer else (), **fields)
    return set(screen(row).reasons) - {"unverifiable_answer"}


CASES = [
    json.loads(line)
    for line in pathlib.Path(__file__).with_name("checks.jsonl").open(encoding="utf-8")
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["reason"]))
def test_rows_go_for_the_reason_that_names_them_and_look_alikes_stay(case):
    found = reasons(case["problem"], case["answer"])
    assert case["reason"] in found if case["reason"] else found == set()


def test_a_problem_too_long_or_an_answer_too_long_goes():
    assert "size" in reasons("Find the sum. " + "word " * 600, "4")
    assert "size" in reasons("Find the number of functions on a set.", "1" * 130)


def test_every_reason_that_applies_is_named():
    both = "Prove that $x$ exists. See <image1>."
    assert {"proof", "not_text", "no_answer"} <= reasons(both, "")


def test_a_grading_without_a_number_of_samples_says_nothing():
    assert reasons("What is $2+5$ here?", meta={"graded": {"samples": "8"}}) == set()


def solved(correct):
    return [
        Evidence(kind="graded", by="m", correct=correct, samples=16, source="graded")
    ]


def test_a_question_that_solvers_answer_needs_no_figure():
    asked = "In the diagram, what is the length of the side $AB$ of the kite?"
    assert "missing_figure" in reasons(asked, evidence=solved(9))
    assert reasons(asked, evidence=solved(14)) == set()


def test_a_shaded_region_needs_its_figure_even_where_solvers_guess_it():
    asked = "In the diagram, three circles touch. Find the {} of the shaded region{}."
    sure = solved(16)
    assert reasons(asked.format("area", ""), evidence=sure) == {"missing_figure"}
    assert reasons(asked.format("area", " between them"), evidence=sure) == set()


def test_solved_rows_stay_in_any_language_and_with_a_drawing_that_repeats_the_text():
    chinese = "已知等边三角形的边长为 1, 求它的面积的四倍的平方."
    assert "other_language" in reasons(chinese)
    assert reasons(chinese, evidence=solved(16)) == set()
    drawn = (
        "In right triangle $EAD$ with right angle at $A$, $AE = 4$ units and $AB = BC$,"
        " the area of triangle $ABE$ is 6 square units. What is the length of $CE$?"
        ' {}[asy] draw((0,0)--(0,4)); label("{}",(0,0),S); [/asy]'
    )
    assert reasons(drawn.format("", "$A$")) == {"not_text"}
    assert reasons(drawn.format("", "$A$"), evidence=solved(16)) == set()
    assert reasons(drawn.format("", "4"), evidence=solved(16)) == {"not_text"}
    below = drawn.format("See below. ", "$A$")
    assert reasons(below, evidence=solved(16)) == {"not_text"}


def test_two_orders_stay_where_solvers_agree_on_what_is_asked():
    asked = "Find the root $r$ of $x + 1 = 3$. Then find the largest power of 5 in $9!$"
    assert reasons(asked) == {"multi_part"}
    assert reasons(asked, evidence=solved(15)) == set()


@pytest.mark.parametrize(
    "problem",
    [
        "Given is $2+x$.\n\nA. Find it for $x=5$.\n\nB. Find $x$ if it is 4.",
        "**a)** Solve $x=1$. **b)** What is then $f(0)$?",
    ],
)
def test_labels_cost_a_row_but_where_they_are_conditions(problem):
    assert reasons(problem) == {"multi_part"}


def test_a_gold_that_says_where_its_boxes_go_is_none():
    gold = r"\boxed{2} \text{ and } \boxed{3}"
    fault = unverifiable_answer(Row(id="a", problem="?", answers=(gold,)))
    assert fault == f"{gold}: is empty, has an unclosed brace, or contains a box"
    sound = Row(id="a", problem="?", answers=(r"[0, \infty)",))
    assert unverifiable_answer(sound) is None
