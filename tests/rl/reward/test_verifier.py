"""The verifier as a reward: its three verdicts, and what a row says of its answer."""

import math

import pytest

from rl.reward.verifier import Score, verifier_reward
from rl.types import Problem
from rl.verifier import Verdict, VerifierPool


@pytest.fixture(scope="module")
def pool():
    with VerifierPool(workers=2) as pool:
        yield pool


def verdicts(pool, problem, *answers):
    judge = verifier_reward(pool.judge)
    texts = [f"So it is \\boxed{{{answer}}}." for answer in answers]
    return [s.verdict.correct for s in judge([texts], [problem])[0]]


def test_any_of_several_answers(pool):
    problem = Problem(id="m", problem="?", answers=("0.01", "0.02"))
    found = verdicts(pool, problem, "0.02", "0.01", "0.015", "0.1")
    assert found == [True, True, False, False]


def test_tolerance_is_what_the_row_states_and_no_more(pool):
    answers = ["4.2", "4.25", "4.3", "4.1\\%", "r = 4.15", "$4.2 \\%$"]
    wrong = ["4.31", "4.09", "42", "-4.2", "four", "4.2, 4.3"]
    stated = Problem(id="o", problem="?", answers=("4.2",), meta={"error": "1e-1"})
    assert verdicts(pool, stated, *answers) == [True] * 6
    assert verdicts(pool, stated, *wrong) == [False] * 6
    ((score,),) = verifier_reward(pool.judge)([["\\boxed{4.3}"]], [stated])
    assert score == Score(reward=1.0, verdict=Verdict(True, "4.3", "tolerance"))
    exact = Problem(id="o", problem="?", answers=("4.2",), meta={"error": None})
    assert verdicts(pool, exact, "4.25", "4.3") == [False, False]


@pytest.mark.parametrize(
    "unit, own, other",
    [
        ("minute", "\\text{ minutes}", "\\text{ hours}"),
        ("km", "\\text{ km}", "\\text{ m}"),
        ("$cm^2$", "\\text{ cm}^2", "\\text{ cm}"),
        ("km/h", "\\text{ km/h}", "\\text{ m/s}"),
        ("min", "\\text{ min}", "\\text{ s}"),
        ("minutes", "\\mathrm{~minutes}", "\\mathrm{~s}"),
    ],
)
def test_a_missing_unit_passes_another_one_does_not(pool, unit, own, other):
    """The six units that OlympiadBench names, with a fraction and a whole number."""
    for gold in ("$\\frac{600}{7}$", "166"):
        problem = Problem(id="u", problem="?", answers=(gold,), meta={"unit": unit})
        bare = gold.strip("$")
        answers = bare, bare + own, bare + other, "17" + own
        assert verdicts(pool, problem, *answers) == [True, True, False, False]


def test_degrees_and_percent_may_be_left_out(pool):
    for unit, own in (("^{\\circ}", "^{\\circ}"), ("%", "\\%")):
        problem = Problem(id="u", problem="?", answers=("42",), meta={"unit": unit})
        assert verdicts(pool, problem, "42", "42" + own, "43") == [True, True, False]
    bare = Problem(id="n", problem="How many?", answers=("42",))
    assert verdicts(pool, bare, "42", r"42\%") == [True, False]


def test_evaluation_passes_the_problem_so_that_copies_are_no_answers(pool):
    text = "What is the value of $2^3 \\cdot 5$?"
    problem = Problem(id="e", problem=text, answers=("40",))
    judge = verifier_reward(pool.judge)
    ((copied, worked),) = judge([["\\boxed{5 \\cdot 2^3}", "\\boxed{40.0}"]], [problem])
    assert (copied.verdict.rule, copied.reward) == ("echo", -1)
    assert (worked.verdict.rule, worked.reward) == ("number", 1)


def test_a_column_of_another_meaning_is_no_tolerance_and_no_unit(pool):
    meta = {"error": "in the figure", "unit": 7}
    problem = Problem(id="c", problem="?", answers=("4",), meta=meta)
    assert verdicts(pool, problem, "4", "5") == [True, False]


@pytest.mark.failure(41)
def test_right_wrong_and_unjudged(pool):
    read = Problem(id="a", problem="Find $x$: $2x+3=13$.", answers=("5",))
    unread = Problem(id="b", problem="?", answers=("\\frac{1}{",))
    texts = ["\\boxed{5}", "\\boxed{6}", "\\boxed{2x+3=13}", "no box", "\\boxed{5}"]
    groups = [texts[:4], texts[4:]]
    scores = sum(verifier_reward(pool.judge)(groups, [read, unread]), [])
    assert [s.verdict.correct for s in scores] == [True, False, False, False, None]
    # 5 solves the equation, but the equation itself is not an answer.
    assert [s.reward for s in scores[:4]] == [1, -1, -1, -1]
    assert math.isnan(scores[4].reward)
