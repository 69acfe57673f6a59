"""Faults of kinds that public reports and variations showed."""

import pytest

from rl.verifier import judge

_MOVES = "Find the largest number of moves in terms of $n$."
_FACTOR = "Factor $x(x+2)+(x+2)$."


def _correct(answer, gold, problem=None):
    return judge(rf"\boxed{{{answer}}}", gold, problem).correct


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


@pytest.mark.parametrize("two", [r"\sqrt{2^2}", r"\binom21", r"\ln e^2", "2"])
def test_a_copy_with_its_numbers_respelled_is_a_copy(two):
    assert not _correct(f"x(x+{two})+(x+{two})", "(x+1)(x+2)", _FACTOR)
    assert _correct("(x+2)(x+1)", "(x+1)(x+2)", _FACTOR)


_FIVE = (
    r"What is $x$? $\textbf{(A)}\ 5\qquad\textbf{(B)}\ 6\qquad\textbf{(C)}\ 7"
    r"\qquad\textbf{(D)}\ \frac{15}{2}\qquad\textbf{(E)}\ 8$"
)
_LINES = "What is it?\n\nA. $5$\n\nB. a line\n\nC. $7$\n\nType the letter."


_INDENTED = r"$\textbf{(A)} \indent 5\indent\textbf{(B)}\ 6\indent\textbf{(C)}\ 7$"


@pytest.mark.parametrize("problem", [_FIVE, "Which? (A) 5 (B) 6 (C) 7", _INDENTED])
@pytest.mark.parametrize("gold", ["B", r"\text{(B)}", "6"])
@pytest.mark.parametrize(
    "option", ["(B) {}", r"\text{{B. }} {}", "B: {}", r"(B)\ {}", r"{}\ \textbf{{(B)}}"]
)
def test_an_option_has_the_value_that_the_problem_gives_it(problem, gold, option):
    assert _correct(option.format("6"), gold, problem)
    assert _correct(option.format("6.0"), gold, problem)
    for value in ("7", "9", r"\frac{15}{2}"):
        assert not _correct(option.format(value), gold, problem)
    assert not _correct(option.format("7"), "7", problem)
    # Without options in the problem, the letter decides.
    assert _correct(option.format("7"), "B", "Which of the five is right?")


def test_an_option_in_words_contradicts_only_another_option():
    assert _correct(r"\text{(B) a straight line}", "B", _LINES)
    assert not _correct("(B) 7", "B", _LINES)
    assert not _correct(r"\text{(A) a line}", "A", _LINES)


def test_an_inequality_is_not_a_point():
    vertex = "Find the vertex of the parabola, as an ordered pair."
    assert not _correct("1<x<3", "(1,3)", vertex)
    assert _correct("(1,3)", "(1,3)", vertex)
    assert _correct("x=1, y=3", "(1,3)", vertex)
    assert _correct("1<x<3", "(1,3)", "For which $x$ is $x^2-4x+3$ negative?")
    assert _correct("(1,3)", "1<x<3", "For which $x$ is the point above the line?")
