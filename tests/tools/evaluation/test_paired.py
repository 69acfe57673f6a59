import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.statistics import difference_interval
from tools.evaluation.paired import sign_flip_p_value


def by_enumeration(differences):
    """The share of all sign patterns whose sum is as far from 0 as the one seen."""
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))))
    sums = np.abs(signs @ np.abs(differences))
    return float((sums >= abs(np.sum(differences)) - 1e-9).mean())


def test_sign_flips_of_single_verdicts_are_mcnemars_exact_test():
    # Five problems lost, one gained: 2 * (C(6,0) + C(6,1)) / 2^6. The chi-square form
    # without correction says 0.102.
    differences = np.array([-1] * 5 + [1] + [0] * 4)
    assert sign_flip_p_value(differences) == pytest.approx(14 / 64, abs=1e-12)
    assert sign_flip_p_value(np.zeros(7)) == 1.0


@settings(deadline=None)
@given(st.lists(st.integers(-12, 12), min_size=1, max_size=9), st.sampled_from([4, 12]))
def test_sign_flips_are_those_counted_one_by_one(numerators, k):
    differences = np.array(numerators) / k
    assert sign_flip_p_value(differences) == pytest.approx(
        by_enumeration(differences), abs=1e-12
    )


def test_sign_flips_agree_with_their_estimate():
    rng = np.random.default_rng(5)
    differences = rng.binomial(8, 0.6, 60) / 8 - rng.binomial(8, 0.52, 60) / 8
    exact = sign_flip_p_value(differences)
    # Of 100,000 draws a share near 0.02 has a standard error of 0.0005.
    assert 0.001 < exact < 0.2
    assert sign_flip_p_value(differences, most_sums=0) == pytest.approx(
        exact, abs=0.003
    )
    # No common denominator: estimated.
    odd = differences * math.sqrt(2)
    assert sign_flip_p_value(odd) == pytest.approx(exact, abs=0.003)


def test_a_few_differences_are_counted_whatever_they_are():
    # Three training seeds: both ends of eight patterns, or of those with two alike.
    assert sign_flip_p_value(np.array([0.1, 0.2, 0.3]) * math.pi) == 0.25
    assert sign_flip_p_value(np.array([-0.1, 0.2, 0.3]) * math.pi) == 0.5
    # A difference of 0 is no pattern of its own.
    assert sign_flip_p_value(np.array([0.0, math.pi, math.e])) == 0.5


def test_the_p_value_says_what_the_interval_says():
    """1,000 comparisons of equal systems, 100 problems of 8 completions each."""
    rng = np.random.default_rng(0)
    tested, excluded = [], []
    for _ in range(1000):
        p = rng.beta(0.5, 0.5, 100)
        differences = (rng.binomial(8, p) - rng.binomial(8, p)) / 8
        tested.append(sign_flip_p_value(differences) < 0.05)
        low, high = difference_interval(differences)
        excluded.append(not low <= 0 <= high)
    assert abs(np.mean(tested) - 0.05) < 0.01
    assert abs(np.mean(excluded) - 0.05) < 0.01
    # They part on the border only. A test of problems solved by majority, McNemar's,
    # says something else in one of twenty.
    assert np.mean(np.array(tested) != np.array(excluded)) < 0.02
