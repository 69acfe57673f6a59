"""The objective on literal numbers: the oracle's, and each trap's wrong answer."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.objective import mask, surrogate, truncate

LENGTHS = (4, 3, 2)
GROUPS = (0, 0, 1)


@pytest.fixture(scope="module")
def golden(shared_data):
    return json.loads((shared_data.parent / "objective_golden.json").read_text())


def _weights(mode: str) -> np.ndarray:
    """Per-token weights of three completions, by the definitions in words."""
    n = np.array(LENGTHS, float)
    by_group = {g: sum(n[i] for i in range(3) if GROUPS[i] == g) for g in GROUPS}
    rows = {
        "token": 1 / np.full(3, n.sum()),
        "sequence": 1 / (3 * n),
        "sequence_sum_mean": np.full(3, 1 / 3),
        "constant_4": np.full(3, 1 / 12),
        "group": 1 / (2 * np.array([by_group[g] for g in GROUPS])),
    }[mode]
    valid = np.arange(4) < n[:, None]
    return rows[:, None] * valid


@pytest.mark.parametrize(
    "mode", ["token", "sequence", "sequence_sum_mean", "constant_4", "group"]
)
@pytest.mark.parametrize("clip", [None, 3.0, 10.0])
def test_every_mode_reproduces_the_oracle(golden, mode, clip):
    with jax.enable_x64(True):
        old = jnp.array(golden["old_logprobs"], jnp.float64)
        policy = old + jnp.array(golden["policy_minus_old"], jnp.float64)
        advantages = jnp.array(golden["advantages_per_row"], jnp.float64)[:, None]
        weights = jnp.array(_weights(mode))

        def loss(policy):
            per_token, _ = surrogate(
                policy,
                old,
                jnp.broadcast_to(advantages, policy.shape),
                eps_low=golden["eps_low"],
                eps_high=golden["eps_high"],
                dual_clip=clip,
            )
            return jnp.sum(weights * per_token)

        value, gradient = jax.value_and_grad(loss)(policy)
        key = "none" if clip is None else f"dual_clip_{clip:.0f}"
        assert abs(float(value) - golden["loss"][mode][key]) < 1e-7
        total = float(jnp.abs(gradient).sum())
        assert abs(total - golden["sum_abs_grad"][mode][key]) < 1e-7


def test_the_upper_bound_is_the_higher_one():
    # ratio 1.25 lies inside 1.28 (gradient flows) and outside 1.2 (it would not).
    def loss(x, high):
        return surrogate(x, jnp.float32(0), jnp.float32(1), eps_low=0.2, eps_high=high)[
            0
        ]

    x = jnp.log(jnp.float32(1.25))
    assert jax.grad(loss)(x, 0.28) == pytest.approx(-1.25)
    assert jax.grad(loss)(x, 0.2) == 0


@pytest.mark.failure(23)
def test_a_huge_log_ratio_stays_finite():
    value, ratio = surrogate(
        jnp.array([200.0, -200.0]),
        jnp.zeros(2),
        jnp.array([-1.0, -1.0]),
        eps_low=0.2,
        eps_high=0.28,
    )
    assert np.isfinite(value).all() and np.isfinite(ratio).all()
    assert float(ratio[0]) == pytest.approx(np.exp(20.0), rel=1e-5)


def test_corrections():
    log_weight = jnp.log(jnp.array([0.4, 0.5, 1.0, 2.0, 2.1]))
    np.testing.assert_allclose(truncate(log_weight, 2.0), [0.4, 0.5, 1, 2, 2], 1e-6)
    np.testing.assert_array_equal(mask(log_weight, 2.05), [0, 1, 1, 1, 0])
