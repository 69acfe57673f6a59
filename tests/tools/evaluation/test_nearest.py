"""The nearest training problem, its numbers exchanged."""

from rl.types import Problem
from tools.evaluation.nearest import nearest_correct


def _problem(text, answer):
    return Problem(id=text, problem=text, answers=(answer,))


TRAIN = [
    _problem("Ann has 9 nuts and eats 4. How many are left?", "5"),
    _problem("A pen costs 3 dollars. How much do 5 pens cost?", "15"),
    _problem("Who is it?", "nobody"),  # no sum gives its answer
]


def test_the_nearest_sum_is_applied_to_the_numbers_at_the_same_places():
    asked = [
        _problem("Bob has 8 cups and eats 2. How many are left?", "6"),
        _problem("A hat costs 2 dollars. How much do 4 hats cost?", "8"),
        _problem("Bob eats 2 nuts of 8. How many are left?", "6"),
        # Nothing says which numbers are meant.
        _problem("A hat costs 2 dollars. How much do all hats cost?", "8"),
    ]
    assert nearest_correct(asked, TRAIN) == [True, True, True, False]


def test_without_a_sum_to_learn_from_nothing_is_right():
    assert nearest_correct(TRAIN, [_problem("Who?", "me")]) == [False] * 3
