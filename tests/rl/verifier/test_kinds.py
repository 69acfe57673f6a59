"""Faults of kinds that public reports and variations showed."""

import pytest

from rl.verifier import judge

_MOVES = "Find the largest number of moves in terms of $n$."
_FACTOR = "Factor $x(x+2)+(x+2)$."


def _correct(answer, gold, problem=None):
    return judge(f"\\boxed{{{answer}}}", gold, problem).correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("n-1", r"n-1 \text{ if } n \text{ is odd, } n \text{ otherwise}"),
        ("n-1", r"n-1\text{ for odd }n,\ n\text{ for even }n"),
        ("n-1", r"n-1\text{ for some }n"),
        ("5", r"5 \text{ because the answer is } 6"),
        ("5", r"5\text{ since half of it is the answer}"),
        ("a", r"a\text{ for }a>b, b\text{ for }b>a"),
        ("A", r"A \text{ with } B"),
        ("A", r"A\text{ if }n\text{ is odd, }B\text{ if }n\text{ is even}"),
    ],
)
def test_a_condition_hides_no_second_answer(gold, answer):
    assert not _correct(answer, gold, _MOVES)
    # A gold with cases is not its first case.
    assert not _correct(gold, answer, _MOVES)
    assert _correct(answer, answer, _MOVES)


def test_a_declared_name_restricts_nothing():
    assert _correct(r"2k+1 \text{ for any integer } k", "2k+1")
    assert _correct(r"x^2+C \text{ for any constant } C", "x^2+C")
    assert not _correct(r"5 \text{ because it is the smallest}", "5")


@pytest.mark.parametrize(
    ("gold", "answer", "problem", "correct"),
    [
        ("25", r"2500\%", "What percent of 12 is 3?", False),
        ("25", r"25\%", "What percent of 12 is 3?", True),
        ("0.5", r"50\%", "What percent of 1000 is 5?", False),
        ("0.5", r"50\%", "What share of the percent is it?", True),
        ("5:12", "10:24", "What is the ratio of boys to girls?", True),
        ("1:20", "2:40", "What is the ratio of boys to girls?", True),
        ("1:20", "2:40", "When does the train leave?", False),
        ("5", "5m", "How many meters of rope does she need?", True),
        ("5", r"5\,m", "How many meters of rope does she need?", True),
        ("5", "5m", "Find the slope of the line $y=5x$.", False),
        ("70", "m+n=70", "The probability is m/n; find m+n.", True),
    ],
)
def test_the_question_decides_the_reading(gold, answer, problem, correct):
    assert _correct(answer, gold, problem) is correct


@pytest.mark.parametrize("two", [r"\sqrt{2^2}", r"\binom21", r"\ln e^2", "2"])
def test_a_copy_with_its_numbers_respelled_is_a_copy(two):
    assert not _correct(f"x(x+{two})+(x+{two})", "(x+1)(x+2)", _FACTOR)
    assert _correct("(x+2)(x+1)", "(x+1)(x+2)", _FACTOR)


@pytest.mark.parametrize(
    "label",
    [
        "log of the answer", "Nobody knows whether it is", "None of them is",
        "everything but the answer is", "twice the answer",
    ],
)  # fmt: skip
def test_a_label_that_doubts_is_none(label):
    assert not _correct(rf"\text{{{label}}} = 5", "5")
