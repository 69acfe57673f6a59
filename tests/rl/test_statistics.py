import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.statistics import (
    avg_at_k,
    compare_seeds,
    difference_interval,
    holm,
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
    with pytest.raises(ValueError, match="pass@3: k must be from 1 to 2"):
        pass_at_k(rows, 3)


def test_wilson_literal():
    # Newcombe 1998, Statistics in Medicine 17, table I: 81/263 and 0/20.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def simulated_coverage(problems, samples, mean, *, runs=300, concentration=1.0):
    """Coverage of `mean_interval` over problems whose rates follow a beta."""
    rng = np.random.default_rng([problems, samples, round(1000 * mean)])
    shape = runs, problems
    rates = rng.beta(mean * concentration, (1 - mean) * concentration, shape)
    scores = rng.binomial(samples, rates) / samples
    found = [mean_interval(row) for row in scores]
    return np.mean([low <= mean <= high for low, high in found])


@pytest.mark.parametrize(
    ("problems", "samples", "mean", "bootstrap"),
    # The last column is what the former percentile bootstrap covered, with Wilson's
    # where all scores are 0 or 1.
    [
        (30, 32, 0.01, 0.815), (30, 32, 0.02, 0.76), (30, 32, 0.05, 0.845),
        (30, 8, 0.05, 0.842), (30, 32, 0.5, 0.942), (30, 32, 0.9, 0.91),
        (96, 8, 0.005, 0.882), (96, 8, 0.05, 0.935), (96, 8, 0.3, 0.945),
        (30, 2, 0.1, 0.91), (500, 32, 0.01, 0.915), (500, 32, 0.3, 0.95),
    ],
)  # fmt: skip
def test_the_interval_covers_the_mean(problems, samples, mean, bootstrap):
    covered = simulated_coverage(problems, samples, mean)
    assert covered >= max(0.92, bootstrap - 0.025)  # standard error of 0.015


def test_nothing_right_and_one_right_are_both_uncertain():
    assert mean_interval(np.zeros(30)) == pytest.approx((0.0, 0.1135), abs=5e-5)
    one = np.zeros(30)
    one[0] = 1 / 32
    low, high = mean_interval(one)
    assert 0 < low < 1 / 960 and high > 0.015  # a bootstrap says 0.0031
    assert mean_interval(1 - one) == pytest.approx((1 - high, 1 - low))


def test_clusters_count_in_place_of_problems():
    """As a claim about new templates, the interval over 96 problems covers half."""
    rng = np.random.default_rng(0)
    templates = np.repeat(np.arange(12), 8)
    rates = rng.beta(1, 1, (300, 12))
    scores = rng.binomial(8, np.repeat(rates, 8, axis=1)) / 8
    alone = [mean_interval(row) for row in scores]
    grouped = [mean_interval(row, templates) for row in scores]
    assert np.mean([low <= 0.5 <= high for low, high in alone]) < 0.6
    assert np.mean([low <= 0.5 <= high for low, high in grouped]) > 0.92
    paired = [difference_interval(row - 0.5, templates) for row in scores]
    assert 0.92 < np.mean([low <= 0 <= high for low, high in paired]) < 0.98
    assert mean_interval(np.zeros(96), templates) == wilson_interval(0, 12)


@pytest.mark.failure(218)
def test_paired_differences_by_hand():
    # 0, 1, 2: mean 1, standard error 1 / sqrt(3), two degrees of freedom.
    half = 4.30265 / math.sqrt(3)
    assert difference_interval(np.array([0.0, 1.0, 2.0])) == pytest.approx(
        (1 - half, 1 + half), rel=1e-5
    )
    assert difference_interval(np.array([0.5])) == (-1.0, 1.0)


def test_methods_are_compared_by_their_seeds():
    """1,000 pairs of equal methods, three seeds each: 3 to 7% have p below 0.05."""
    rng = np.random.default_rng(1)
    # 500 problems of 32 completions; the seed moves accuracy by 1.8 points.
    accuracy = 0.5 + 0.018 * rng.normal(size=(1000, 2, 3, 1))
    rates = np.clip(accuracy + 0.2 * rng.normal(size=(1000, 1, 1, 100)), 0, 1)
    scores = (rng.binomial(32, rates) / 32).mean(axis=-1)
    found = [compare_seeds(a, b) for a, b in scores]
    assert 0.03 <= np.mean([p <= 0.05 for _, p in found]) <= 0.07
    assert all((p <= 0.05) == (low > 0 or high < 0) for (low, high), p in found)
    assert compare_seeds([0.5], [0.6, 0.7, 0.8]) is None
    (low, high), p = compare_seeds([0.0, 2.0], [4.0, 6.0])  # t = 4 / sqrt(2)
    assert p == pytest.approx(0.1056, abs=5e-5)
    assert (low + high) / 2 == pytest.approx(4.0)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0] and holm([]) == []
    assert holm([float("nan"), 0.01]) == [1.0, 0.02]


def test_several_equal_arms_seldom_have_a_significant_one():
    """Ten arms and a reference, three seeds each: unadjusted, a third of reports."""
    rng = np.random.default_rng(2)
    raw, adjusted = [], []
    for _ in range(400):
        reference, *arms = rng.normal(size=(11, 3))
        p_values = [compare_seeds(reference, arm)[1] for arm in arms]
        raw.append(min(p_values) < 0.05)
        adjusted.append(min(holm(p_values)) < 0.05)
    assert np.mean(raw) > 0.2 and np.mean(adjusted) < 0.07
