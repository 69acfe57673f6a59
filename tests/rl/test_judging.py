import pytest

from rl.evaluate import Drawn, Scored
from rl.judging import answer_classes, make_judge
from rl.types import Problem
from rl.verifier import Verdict, VerifierPool


@pytest.fixture(scope="module")
def pool():
    with VerifierPool(workers=2) as pool:
        yield pool


def verdicts(pool, problem, *answers):
    judge = make_judge(pool)
    texts = [f"So it is \\boxed{{{answer}}}." for answer in answers]
    return [v.correct for v in judge(texts, [problem] * len(texts))]


def test_any_of_several_answers(pool):
    problem = Problem(id="m", problem="?", answers=("0.01", "0.02"))
    assert verdicts(pool, problem, "0.02", "0.01", "0.015", "0.1") == [
        True,
        True,
        False,
        False,
    ]


def test_tolerance_is_what_the_row_states_and_no_more(pool):
    answers = ["4.2", "4.25", "4.3", "4.1\\%", "r = 4.15", "$4.2 \\%$"]
    wrong = ["4.31", "4.09", "42", "-4.2", "four", "4.2, 4.3"]
    stated = Problem(id="o", problem="?", answers=("4.2",), meta={"error": "1e-1"})
    assert verdicts(pool, stated, *answers) == [True] * 6
    assert verdicts(pool, stated, *wrong) == [False] * 6
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
        assert verdicts(pool, problem, bare, bare + own, bare + other, "17" + own) == [
            True,
            True,
            False,
            False,
        ]


def test_degrees_and_percent_may_be_left_out(pool):
    for unit, own in (("^{\\circ}", "^{\\circ}"), ("%", "\\%")):
        problem = Problem(id="u", problem="?", answers=("42",), meta={"unit": unit})
        assert verdicts(pool, problem, "42", "42" + own, "43") == [True, True, False]


def test_answers_fall_into_classes_of_equal_value(pool):
    def scored(id, *answers):
        return [
            Scored(
                drawn=Drawn(id=id, sample=i, completion=""),
                verdict=Verdict(False, answer, "ok"),
            )
            for i, answer in enumerate(answers)
        ]

    rows = scored("a", "0.5", "7", "\\frac{1}{2}", None, "1/2", "7.0")
    rows += scored("b", "0.5", None) + scored("c", None)
    classes = answer_classes(rows, pool)
    half, seven = classes["a"][0], classes["a"][1]
    # By text alone there would be five classes, each with one vote.
    assert classes["a"] == [half, seven, half, None, half, seven]
    assert half != seven
    assert classes["b"][1] is None and classes["c"] == [None]
