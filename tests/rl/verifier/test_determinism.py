"""A verdict depends on its arguments alone: not on load, nor on workers."""

import itertools
import random
import subprocess
import sys

import pytest

from rl.verifier import VerifierPool, judge
from tests.rl.verifier.expressions import expression, identity, near_misses
from tests.rl.verifier.hostile import FAMILIES

_PROBLEM = r"Find $x$ with $2x + 3 = 13$, or the sum $\sum_{k=1}^{10} k$."


@pytest.fixture(scope="module")
def items():
    """1,200 mixed pairs: hostile ones in both directions, random ones, near misses."""
    pairs = []
    for rows in FAMILIES.values():
        for gold, predicted, _ in rows:
            pairs += [(predicted, gold), (gold, predicted)]
    r = random.Random(1)
    while len(pairs) < 1_200:
        e = expression(r)
        pairs += [
            (other.tex, e.tex) for other in itertools.islice(near_misses(e, r), 3)
        ]
        pairs += [tuple(side.tex for side in identity(r)) for _ in range(3)]
    return [
        (rf"\boxed{{{answer}}}", (gold,), _PROBLEM) for answer, gold in pairs[:1_200]
    ]


@pytest.fixture(scope="module")
def expected(items):
    return [judge(*item) for item in items]


def test_the_pairs_are_of_every_kind(expected):
    rules = {verdict.rule for verdict in expected}
    assert {"text", "number", "enclosure", "different", "open"} <= rules
    assert {"unfinished", "unreadable", "no_answer"} <= rules
    assert "lost" not in rules


def test_in_four_workers(items, expected):
    """Each worker is an interpreter with a hash seed of its own."""
    with VerifierPool(4, timeout=60) as pool:
        assert pool.judge(items) == expected
        assert pool.counts["replaced"] == 0


def test_in_another_order(items, expected):
    order = random.Random(2).sample(range(len(items)), len(items))
    assert [judge(*items[index]) for index in order[:300]] == [
        expected[index] for index in order[:300]
    ]


def test_beside_busy_loops(items, expected):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in "12"]
    try:
        assert [judge(*item) for item in items[::6]] == expected[::6]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
