"""Advantages, token weights and the filter on literal numbers."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from rl.groups import advantages, informative, token_weights
from tests.rl.examples import make_group


def test_advantages_are_relative_to_the_group():
    # ddof 0 would give +-1.7320 and -0.5773.
    values = advantages(np.array([1, -1, -1, -1]), scale="std")
    np.testing.assert_allclose(values, [1.5, -0.5, -0.5, -0.5], atol=1e-5)
    values = advantages(np.array([1, -1, -1, -1]), scale="mean")
    np.testing.assert_allclose(values, [1.5, -0.5, -0.5, -0.5])
    np.testing.assert_array_equal(advantages(np.ones(4), scale="std"), np.zeros(4))


@given(st.lists(st.sampled_from([-1.0, 1.0, -0.3]), min_size=2, max_size=32))
def test_advantages_sum_to_nothing(rewards):
    assert abs(advantages(np.array(rewards), scale="std").sum()) < 1e-9


@pytest.mark.failure(19)
def test_the_filter_reads_raw_accuracy_and_not_the_shaped_reward():
    wrong = make_group([False] * 3, lengths=[3, 9, 20], rewards=[-1.0, -1.4, -1.9])
    assert not informative(wrong)
    right = make_group([True] * 3, rewards=[1.0, 0.5, 0.1])
    assert not informative(right)
    assert informative(make_group([True, False, False]))


def test_token_weights_of_every_mode():
    groups = [
        make_group([True, False], lengths=[2, 4]),
        make_group([True, False], lengths=[1, 3]),
    ]

    def weights(mode):
        return np.concatenate(token_weights(groups, aggregation=mode, constant=8))

    np.testing.assert_allclose(weights("token"), [1 / 10] * 4)
    np.testing.assert_allclose(weights("group"), [1 / 12, 1 / 12, 1 / 8, 1 / 8])
    np.testing.assert_allclose(weights("sequence"), [1 / 8, 1 / 16, 1 / 4, 1 / 12])
    np.testing.assert_allclose(weights("constant"), [1 / 32] * 4)
    with pytest.raises(ValueError, match="objective.aggregation='mean'"):
        weights("mean")
