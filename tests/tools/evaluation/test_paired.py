import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.evaluation.compare import sign_flip_p_value


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
