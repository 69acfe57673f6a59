"""Random closed expressions accept nothing that they are not, and what they are.

The plain run takes some 10 s. Longer, and with another seed:

    export VERIFIER_FUZZ_MINUTES=20 VERIFIER_FUZZ_SEED=7
    pytest tests/rl/verifier/test_wildcards.py
"""

import itertools
import os
import random
import time
from collections.abc import Iterator

import pytest
from flint import arb

from rl.verifier import is_equivalent
from tests.rl.verifier import expressions
from tests.rl.verifier.expressions import Expression, expression, surely_differ

_MINUTES = float(os.environ.get("VERIFIER_FUZZ_MINUTES", 0))
_SEED = int(os.environ.get("VERIFIER_FUZZ_SEED", 0))


def _golds() -> list[Expression]:
    found = [expressions.integer(n) for n in range(-20, 121)]
    for top, bottom in [(1, 2), (1, 3), (2, 3), (3, 4), (7, 5), (-5, 6), (27, 128)]:
        tex = rf"\frac{{{top}}}{{{bottom}}}"
        found.append(Expression(tex, lambda t=top, b=bottom: arb(t) / b))
    for n in (2, 3, 5, 6, 7, 10, 15):
        found.append(Expression(rf"\sqrt{{{n}}}", lambda n=n: arb(n).sqrt()))
        found.append(Expression(rf"2\sqrt{{{n}}}", lambda n=n: 2 * arb(n).sqrt()))
        found.append(Expression(rf"\frac{{\pi}}{{{n}}}", lambda n=n: arb.pi() / n))
        found.append(Expression(rf"\ln {n}", lambda n=n: arb(n).log()))
    for tenths in (1, 5, 12, 25, 36, 99, 144, 1585):
        text = f"{tenths / 10:.1f}"
        found.append(Expression(text, lambda t=tenths: arb(t) / 10))
    for k in (3, 6, 9, 20, 50, 100):
        found.append(Expression(f"10^{{{k}}}", lambda k=k: arb(10) ** k))
    found.append(Expression("e", lambda: arb.const_e()))
    found.append(Expression(r"\pi", lambda: arb.pi()))
    # These are no numbers: no closed expression is one of them.
    for tex in ("x", "3x+1", "x^2", r"\frac{x}{2}", "(1,2)", "[0,1]", "2, 3", "x>2"):
        found.append(Expression(tex, lambda: arb("nan")))
    return found


_GOLDS = _golds()


def _cases(count: int, salt: int) -> Iterator[random.Random]:
    """Yields a number of seeded sources, or all that the minutes allow."""
    until, index = time.monotonic() + 60 * _MINUTES / 3, 0
    while index < count or time.monotonic() < until:
        yield random.Random(f"{_SEED} {salt} {index}")
        index += 1


@pytest.mark.failure(42)
def test_no_gold_is_accepted_that_the_value_is_not():
    accepted = []
    for r in _cases(110, 1):
        e = expression(r)
        for gold in _GOLDS:
            if is_equivalent(e.tex, gold.tex):
                if gold.value.is_finite() and not surely_differ(e, gold):
                    continue
                accepted.append((e.tex, gold.tex))
    assert accepted == []


@pytest.mark.failure(42)
def test_no_near_miss_is_accepted():
    accepted, tried = [], 0
    for r in _cases(250, 2):
        e = expression(r)
        for other in expressions.near_misses(e, r):
            if surely_differ(e, other):
                tried += 1
                if is_equivalent(other.tex, e.tex):
                    accepted.append((e.tex, other.tex))
    assert tried > 1_000
    assert accepted == []


def test_identities_are_accepted():
    missed, tried = [], 0
    for r in _cases(400, 3):
        left, right = expressions.identity(r)
        tried += 1
        if not is_equivalent(left.tex, right.tex):
            missed.append((left.tex, right.tex))
    assert len(missed) <= 0.05 * tried, (len(missed), tried, missed[:12])


# No two of them are one answer, whatever their kind.
_OF_ALL_KINDS = (
    "A", "B", "x", "n", "-x+3", "y=4x", "f(x)=x^2", "2x+1", "f(n)=3n+1", "AB",
    r"\triangle ABC", r"\overline{CD}", "(6,5)", "(5,5)", "(-1,-2)", "(x,y)=(9,8)",
    "(-1,-2),(3,1)", "(3,2,1)", "(2,7)", "[2,7]", "(2,7]", "[3,-1]", "x<2", r"x\ge2",
    r"(-\infty,1)\cup(4,\infty)", r"\{8,9\}", "8,10", r"\emptyset", "400",
    r"\frac{25}{2}", r"x\equiv3\pmod7", r"x\equiv1\pmod2", r"\text{odd}", r"k\pi",
    "3:4", r"30^\circ", r"25\%", r"5\text{ m}", r"5\text{ kg}",
)  # fmt: skip
# What has no points, every integer, or nothing to say.
_HOLLOW = (
    "[1,0]", "(1,0)", "1<x<0", r"x\in(1,0)", r"(2,1)\cap\{0\}", "[1,0],[1,0]",
    r"\mathbb{R}\setminus\mathbb{R}", r"x<0\text{ and }x>1", r"(1,0)\cup(3,2)",
    r"0\pmod1", r"x\equiv0\pmod1", r"n\equiv0\pmod{-1}", r"1\pmod{0}",
    r"k,k\in\mathbb{Z}",
    r"\{x: x\ne x\}", r"\pm", r"\text{any}", "x=x", "0=0", r"\{\}\cap\{1\}",
)  # fmt: skip


def test_no_answer_is_two():
    # With (a, b), a >= b, read as an interval, [1, 0] was each of the points.
    pairs = itertools.combinations(_OF_ALL_KINDS, 2)
    assert not [pair for pair in pairs if is_equivalent(*reversed(pair))]
    golds = [gold for gold in _OF_ALL_KINDS if gold != r"\emptyset"]
    accepted = {
        answer: [gold for gold in golds if is_equivalent(answer, gold)]
        for answer in _HOLLOW
    }
    assert {answer: golds for answer, golds in accepted.items() if golds} == {}
