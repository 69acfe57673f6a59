"""Computes a nearest-neighbour baseline for word problems.

The baseline uses the training problems whose answer is the result of one operation on
two numbers of the text. It finds the one with the most similar set of words, and
applies its operation to the numbers at the same positions in the new problem. With the
10,000 training problems of configs/smollm2_words.py, the accuracy on SVAMP is 17.3%.
Only a higher accuracy of a model shows understanding.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from configs.base import from_config
from configs.reading import read_config
from rl.problems.reading import load_problems
from rl.statistics import wilson_interval
from rl.types import Problem
from rl.verifier import is_equivalent

_Sum = tuple[str, int, int]  # operation, and positions of two numbers of a text
_OPERATIONS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: abs(a - b),
    "*": lambda a, b: a * b,
    "/": lambda a, b: max(a, b) / min(a, b) if min(a, b) else Fraction(-1),
}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def nearest_correct(
    problems: Sequence[Problem], train: Sequence[Problem]
) -> list[bool]:
    """Returns for each problem whether the baseline's answer is correct."""
    known = [(_words(p), found) for p in train if (found := _sum_of(p))]
    if not known:
        return [False] * len(problems)
    correct = []
    for problem in problems:
        words = _words(problem)
        # Cosine similarity of sets, without the factor that all pairs share.
        _, found = max(
            known, key=lambda k: len(words & k[0]) / math.sqrt(len(k[0]) or 1)
        )
        answer = _answer(found, _numbers(problem.problem))
        correct.append(
            answer is not None
            and any(is_equivalent(gold, str(answer)) for gold in problem.answers)
        )
    return correct


def _sum_of(problem: Problem) -> _Sum | None:
    """Returns the first operation on two numbers that gives the answer, or None."""
    numbers = _numbers(problem.problem)
    try:
        gold = Fraction(problem.answers[0])
    except ValueError:
        return None
    places = list(itertools.permutations(range(len(numbers)), 2))
    sums = [(sign, *pair) for sign in _OPERATIONS for pair in places]
    return next((found for found in sums if _answer(found, numbers) == gold), None)


def _answer(found: _Sum, numbers: Sequence[Fraction]) -> Fraction | None:
    sign, first, second = found
    if max(first, second) >= len(numbers):
        return None
    return _OPERATIONS[sign](numbers[first], numbers[second])


def _numbers(text: str) -> list[Fraction]:
    return [Fraction(number) for number in _NUMBER.findall(text)]


def _words(problem: Problem) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", problem.problem.lower()))


def training_problems(config: str | None) -> list[Problem]:
    """Returns the problems of `data.train` of a config file; none without a config."""
    if not config:
        return []
    d = from_config(read_config(config)).data
    key = "config.data.train"
    return load_problems(d.train, key=key, fields=d.fields, arguments=d.train_args)


def nearest_result(
    problems: Sequence[Problem], train: Sequence[Problem]
) -> dict[str, Any]:
    """Returns the baseline's accuracy `nearest`, with its 95% interval."""
    correct = nearest_correct(problems, train)
    interval = wilson_interval(sum(correct), len(correct))
    return {"nearest": sum(correct) / len(correct), "nearest_interval": interval}
