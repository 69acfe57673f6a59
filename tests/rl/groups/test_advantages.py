"""Advantages on literal numbers."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from configs import base
from rl.groups.advantages import ADVANTAGES, compute_advantages, load_advantage
from rl.update.optimizer import make_optimizer
from tests.rl.examples import make_group

FIRST = make_group([True, False, False, False])
SECOND = make_group([True, False], rewards=[2.0, -2.0])


# Of rewards 1, -1, -1, -1 in a step with 2, -2; and of the latter.
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        # ddof 0 would give +-1.7320 and -0.5773.
        ("std", [1.5, -0.5, -0.5, -0.5], [2**-0.5, -(2**-0.5)]),
        ("mean", [1.5, -0.5, -0.5, -0.5], [2, -2]),
        # The std of 1.5, -0.5, -0.5, -0.5, 2, -2, whose mean is 0, is sqrt(11 / 6).
        ("batch_std", np.array([1.5, -0.5, -0.5, -0.5]) / np.sqrt(11 / 6), None),
        # By the rewards' mean, -0.5, it would be -3 where right.
        ("maxrl", [3, -1, -1, -1], [1, -1]),
        ("leave_one_out", [2, -2 / 3, -2 / 3, -2 / 3], [4, -4]),
    ],
)
def test_advantages_of_every_name(name, first, second):
    found = compute_advantages([FIRST, SECOND], name)
    np.testing.assert_allclose(found[0], first, atol=1e-5)
    if second is not None:
        np.testing.assert_allclose(found[1], second, atol=1e-5)


@pytest.mark.parametrize("name", ADVANTAGES)
@given(st.lists(st.sampled_from([-1.0, 1.0, -0.3]), min_size=2, max_size=32))
def test_advantages_sum_to_nothing(name, rewards):
    correct = [r > 0 for r in rewards]
    group = make_group(correct, rewards=rewards)
    found = compute_advantages([group, FIRST], name)[0]
    assert abs(found.sum()) < 1e-9
    if len(set(rewards)) == 1:
        assert not found.any()


def by_length(rewards, lengths):
    return rewards / np.sqrt(lengths)


def infinite(rewards):
    return rewards / 0.0


def unknown(rewards, prompts):
    return rewards


def test_a_users_function_takes_what_it_names():
    group = make_group([True, False], lengths=[4, 9])
    found = compute_advantages([group], f"{__name__}:by_length")
    np.testing.assert_allclose(found[0], [1 / 2, -1 / 3])


@pytest.mark.failure(33)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_is_no_advantage_is_one_line_that_names_it():
    with pytest.raises(ValueError, match="='best': must be one of std, mean"):
        load_advantage("best")
    wrong = "unknown argument 'prompts'; use only rewards"
    with pytest.raises(ValueError, match=wrong):
        load_advantage(f"{__name__}:unknown")
    with pytest.raises(ValueError, match=r"of problem 'p0'; returned \[inf, -inf, "):
        compute_advantages([FIRST], f"{__name__}:infinite")


def fails(rewards):
    return {}["a"]


@pytest.mark.failure(153)
def test_an_error_of_a_users_function_is_one_line():
    place = r"tests/rl/groups/test_advantages.py:\d+"
    with pytest.raises(ValueError, match=f"advantage='.*:fails': {place}: KeyError: "):
        compute_advantages([FIRST], f"{__name__}:fails")
    with pytest.raises(ValueError, match="'optax:adamw': .*TypeError: adamw.. missing"):
        make_optimizer(base.Optimizer(function="optax:adamw"))
