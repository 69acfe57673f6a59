"""What the helper process of `symbolic` runs: sympy, loaded and warm."""

import functools
from collections.abc import Callable
from fractions import Fraction

from rl.verifier.sympy_judge import decide
from rl.verifier.tree import INFINITY, Node, divide, number, power


def judge_expressions(left: Node) -> Callable[[Node], bool | None]:
    """What a helper process runs."""
    return functools.partial(decide, left)


def _warm_up() -> None:
    """The first sum, limit and integral load much of sympy: not in an item's time."""
    x, n = ("sym", "x"), ("sym", "n")
    zero, one = number(0), number(1)
    half_to_n = power(number(Fraction(1, 2)), n)
    decide(("big", "sum", n, zero, INFINITY, half_to_n), one)
    decide(("big", "int", x, zero, one, ("fn", "sin", x)), one)
    decide(("big", "lim", x, zero, zero, divide(("fn", "sin", x), x)), one)


_warm_up()
