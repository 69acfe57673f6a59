"""Duplicates, contradictions, and overlap with held-out problems."""

import pytest

from rl.problems.repeats import describe_repeats
from rl.types import Problem


def _problem(id, text, *answers):
    return Problem(id=id, problem=text, answers=answers)


@pytest.mark.failure(61)
def test_each_kind_is_counted():
    train = [
        _problem("a", "What is 1/2?", "0.5"),
        _problem("b", "What is\n1/2? ", "1/2"),
        _problem("c", "What is 1/2?", "2"),
        _problem("d", "What is 3?", "3"),
    ]
    assert describe_repeats(train, [_problem("x", "What is  3?", "3")]) == [
        "2 training problems repeat the text of an earlier problem (first 'b')",
        "1 training problems repeat the text of an earlier problem with another answer"
        " (first 'c')",
        "1 training problems are also held-out problems, whose scores are then too high"
        " (first 'd')",
    ]
    assert describe_repeats(train[:1], []) == []
