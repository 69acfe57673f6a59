"""Solve rates: the beta-binomial, priors of levels, evidence that fades."""

import json
import math

import numpy as np
import pytest

from rl.groups.solve_rates import SolveRate, SolveRates
from rl.types import Problem
from tests.rl.examples import make_problems


def _observe(rates, problem, right, wrong, *, step=0, chance=1.0):
    correct = np.array([True] * right + [False] * wrong)
    rates.observe(problem, correct, chance=chance, step=step)


def _beta(a, b):
    return math.gamma(a) * math.gamma(b) / math.gamma(a + b)


def test_the_chance_of_a_mixed_group_is_the_beta_binomials():
    # All rates alike: every number of right ones among 4 is as likely.
    alike = SolveRate(np.array([1.0]), np.array([1.0]))
    assert alike.mixed(4) == pytest.approx(3 / 5)
    a, b, n = 0.5, 2.5, 8
    none, every = (_beta(a + k, b + n - k) / _beta(a, b) for k in (0, n))
    assert SolveRate(a, b).mixed(n) == pytest.approx(1 - none - every, abs=1e-12)
    assert SolveRate(a, b).mixed(1) == pytest.approx(0, abs=1e-15)
    assert SolveRate(3.0, 1.0).mean == 0.75


def test_before_anything_is_known_all_rates_are_alike():
    rates = SolveRates(make_problems([1, None, 5]), half_life=10)
    told = rates.at(0)
    np.testing.assert_allclose(told.right, 1)
    np.testing.assert_allclose(told.wrong, 1)
    assert not rates.seen.any()


def test_a_level_tells_of_the_problems_in_it_that_were_never_seen():
    """Level 1 is always right, level 2 never, and level 3 half and half."""
    rates = SolveRates(make_problems([1] * 60 + [2] * 60 + [3] * 61), half_life=1000)
    for i in range(59):
        _observe(rates, i, 8, 0)
        _observe(rates, 60 + i, 0, 8)
        _observe(rates, 120 + i, 8 * (i % 2), 8 - 8 * (i % 2))
    unseen = [59, 119, 180]
    told = rates.at(0)
    assert not rates.seen[unseen].any() and rates.seen.sum() == 177
    mean, mixed = told.mean[unseen], told.mixed(8)[unseen]
    assert mean[0] > 0.95 and mean[1] < 0.05 and 0.45 < mean[2] < 0.55
    # Of level 3 each problem is one or the other: as little to learn as of the others.
    assert (mixed < 0.3).all()
    # Whereas rates about a half make groups that teach.
    middling = SolveRates(make_problems([3] * 60), half_life=1000)
    for i in range(59):
        _observe(middling, i, 4, 4)
    assert middling.at(0).mixed(8)[59] > 0.9


def test_who_was_drawn_by_a_small_chance_stands_for_many():
    rates = SolveRates(make_problems([1] * 200), half_life=1000)
    for i in range(90):  # all of the teachable third, and a tenth of the solved others
        _observe(rates, i, 4, 4)
    for i in range(18):
        _observe(rates, 90 + i, 8, 0, chance=0.1)
    assert rates.at(0).mean[-1] == pytest.approx((90 * 0.5 + 180) / 270, abs=0.02)


def test_what_was_seen_counts_half_after_its_half_life_and_adds_up():
    rates = SolveRates(make_problems([None] * 2), half_life=20)
    prior = SolveRates(make_problems([None] * 2), half_life=20)
    for r in (rates, prior):  # the same level; only one of them knows the problem
        _observe(r, 1, 3, 5)
    rates._right[0], rates._wrong[0], rates._last[0] = 6, 2, 10
    base, told, later = prior.at(10), rates.at(10), rates.at(30)
    assert told.right[0] - base.right[0] == pytest.approx(6)
    assert later.right[0] - base.right[0] == pytest.approx(3)
    assert later.wrong[0] - base.wrong[0] == pytest.approx(1)
    _observe(rates, 0, 1, 7, step=30)
    assert (rates._right[0], rates._wrong[0]) == (4, 8)


def test_a_group_without_verdicts_is_not_seen():
    none = SolveRates(make_problems([1, 1]), half_life=10)
    _observe(none, 0, 0, 0)
    assert not none.seen.any()


def test_the_state_of_30000_problems_is_small_and_comes_back_bit_for_bit():
    rng = np.random.default_rng(0)
    problems = make_problems(rng.integers(1, 6, 30_000).tolist())
    rates = SolveRates(problems, half_life=33)
    for i in rng.integers(0, 30_000, 500):
        _observe(rates, i, *rng.multinomial(16, [0.3, 0.7]).tolist(), step=int(i) % 90)
    text = json.dumps(rates.state())
    assert len(text) < 900_000
    again = SolveRates(problems, half_life=33)
    again.restore(json.loads(text))
    assert json.dumps(again.state()) == text
    for one, other in zip(rates.at(91), again.at(91), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.failure(219)
def test_added_problems_and_levels_begin_without_verdicts():
    problems = make_problems([1, 2])
    rates = SolveRates(problems, half_life=33)
    _observe(rates, 1, 3, 5, step=0)
    added = [Problem(id="new", problem="?", answers=("1",), level=3), problems[1]]
    again = SolveRates(added, half_life=33)
    again.restore(json.loads(json.dumps(rates.state())))
    assert again.seen.tolist() == [False, True]
    assert again.at(0).right[1] == rates.at(0).right[1]
