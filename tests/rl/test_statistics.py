import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rl.statistics import (
    avg_at_k,
    bootstrap_interval,
    mean_interval,
    pass_at_k,
    wilson_interval,
)

verdicts = st.lists(st.booleans(), min_size=1, max_size=8)


def test_one_right_of_32():
    row = [[True] + [False] * 31]
    assert avg_at_k(row)[0] == 1 / 32
    assert pass_at_k(row, 1)[0] == pytest.approx(1 / 32, abs=1e-15)
    # The biased 1 - (1 - c/n)^k would say 0.638.
    assert pass_at_k(row, 32)[0] == 1.0
    assert pass_at_k(row, 8)[0] == pytest.approx(8 / 32, abs=1e-15)


@settings(deadline=None)
@given(verdicts, st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(row, data):
    k = data.draw(st.integers(1, len(row)))
    subsets = list(itertools.combinations(row, k))
    by_counting = sum(map(any, subsets)) / len(subsets)
    assert pass_at_k([row], k)[0] == pytest.approx(by_counting, abs=1e-12)


def test_pass_at_k_of_large_n_does_not_overflow():
    row = [True] * 3 + [False] * 9997
    exact = 1 - math.comb(9997, 5000) / math.comb(10000, 5000)
    assert pass_at_k([row], 5000)[0] == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_of_rows_of_different_length():
    rows = [[True, False], [False, False, True]]
    np.testing.assert_allclose(pass_at_k(rows, 2), [1, 2 / 3], atol=1e-15)
    with pytest.raises(ValueError, match="pass@3 of a problem with 2 completions"):
        pass_at_k(rows, 3)


def test_wilson_literal():
    # Newcombe 1998, Statistics in Medicine 17, table I: 81/263 and 0/20.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@settings(deadline=None)
@given(st.integers(1, 700), st.data())
def test_wilson_solves_its_quadratic(n, data):
    """Its ends are where the score test just rejects: |p - p0| = z sd(p0)."""
    successes = data.draw(st.integers(0, n))
    z = stats.norm.ppf(0.975)
    for end in wilson_interval(successes, n):
        distance = abs(successes / n - end)
        assert distance == pytest.approx(z * math.sqrt(end * (1 - end) / n), abs=1e-9)


def test_bootstrap_of_many_is_the_normal_interval():
    scores = np.random.default_rng(3).beta(0.5, 1, size=120)
    half = 1.96 * scores.std() / math.sqrt(120)
    normal = scores.mean() - half, scores.mean() + half
    # The Monte Carlo error of a quantile here is about 0.0007.
    assert bootstrap_interval(scores, resamples=20_000) == pytest.approx(
        normal, abs=0.004
    )
    assert bootstrap_interval(scores[:1]) == (scores[0], scores[0])


def test_bootstrap_resamples_problems_not_completions():
    """Two problems, all right and all wrong, leave the mean anywhere in [0, 1]."""
    low, high = bootstrap_interval(avg_at_k([[True] * 32, [False] * 32]))
    # Resampling the 64 completions would give about (0.38, 0.62).
    assert (low, high) == (0.0, 1.0)


def test_nothing_solved_is_not_certainty():
    # A bootstrap of 30 zeros has the interval (0, 0).
    assert mean_interval(np.zeros(30)) == pytest.approx((0.0, 0.1135), abs=5e-5)
    scores = np.array([0.25, 1.0, 0.0, 0.5])
    assert mean_interval(scores) == bootstrap_interval(scores)
