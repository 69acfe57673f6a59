"""A benchmark that no text holds, since it is made when it is asked for."""

import re

import numpy as np

from rl.types import Problem
from rollout.seeds import generator


def clean_problems(date: str) -> list[Problem]:
    """Sums that no text holds: 200 random expressions with their values, by depth.

    In the manner of RandomCalculation (arXiv 2507.10532): integers and + - * /, where
    every division comes out whole; the level is the number of operations, 1 to 5, of
    which there are as many each.

    Args:
      date: the seed, such as 2026-11-22: a set that is younger than the model.
    """
    source = f"clean:{date}"
    rng = generator(seed_of(source))
    problems = []
    for i in range(200):
        operations = 1 + i % 5
        text, value = _expression(operations, rng)
        problems.append(
            Problem(
                id=f"clean-{i}",
                problem=f"What is the value of ${text}$?",
                answers=(str(value),),
                source=source,
                level=operations,
            )
        )
    return problems


def seed_of(dated: str) -> int:
    """A seed from the digits of a date; what words stand before it does not matter.

    Raises:
      ValueError: there are none.
    """
    digits = re.sub(r"\D", "", dated)
    if not digits:
        raise ValueError(f"{dated}: give a date, such as 2026-11-22")
    return int(digits)


def _expression(operations: int, rng: np.random.Generator) -> tuple[str, int]:
    if operations == 0:
        value = int(rng.integers(2, 100))
        return str(value), value
    of_left = int(rng.integers(operations))
    left, a = _expression(of_left, rng)
    right, b = _expression(operations - 1 - of_left, rng)
    symbol = "+-*/"[rng.integers(4)]
    if symbol == "/" and (b == 0 or a % b):
        symbol = "*"
    value = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: a // b,
    }[symbol]()
    shown = {"*": "\\times", "/": "\\div"}.get(symbol, symbol)
    left = f"({left})" if of_left else left
    right = f"({right})" if of_left < operations - 1 else right
    return f"{left} {shown} {right}", value
