"""What a whole set shares goes; what one row has, or a question needs, stays."""

import pytest

from tests.tools.curation.test_formats import DAPO
from tools.curation.sets import unwrap

NAMES = "ants bees cats dogs eels foxes goats hens ibexes jays kites lions".split()
ASKED = [f"There are {n} {name}. How many legs?" for n, name in enumerate(NAMES)]


@pytest.mark.parametrize(
    "wrapped",
    [
        DAPO,
        "Solve the following problem. {}",
        "Question: {}\nAnswer:",
        "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
        "{}\n\nPresent the answer in LaTex format: \\boxed{{Your answer}}",
        "{} \\( \\text{{Answer: }} \\boxed{{?}} \\)",
        "{} $\\boxed{{ }}$",
        # of a tail of 480 characters all
        "{} "
        + "Think inside of <think> tags first, and look at all of it once more. " * 6
        + "Then give the answer alone.",
        "{} Return it in a box, for example \\boxed{{1}}. Let's solve this in steps.",
    ],
)
def test_a_wrapper_goes(wrapped):
    assert unwrap([wrapped.format(asked) for asked in ASKED]) == ASKED
    few = [wrapped.format(asked) for asked in ASKED[:5]] + ASKED[5:]
    assert unwrap(few) == few


def test_a_wrapper_goes_behind_a_formula_too():
    asked = [*ASKED[:11], "What is $2+3.$"]
    assert unwrap([f"{one} Please think step by step." for one in asked]) == asked


@pytest.mark.parametrize(
    "needed",
    [
        "Simplify the expression. ${}x + 2x$",
        "The quotient of {} and 100 is m/n. How large is it? Find m + n.",
        "How much is {} of 7? Give it to 2 decimal places.",
    ],
)
def test_what_a_question_needs_stays(needed):
    problems = [needed.format(i) for i in range(12)]
    assert unwrap(problems) == problems
