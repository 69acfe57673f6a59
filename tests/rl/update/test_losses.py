"""Losses against formulas written in NumPy, token by token, and in torch."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.update import losses
from sharding.mesh import make_mesh
from sharding.rules import named_sharding

EPS = dict(eps_low=0.2, eps_high=0.28)
# Two rows: completions at these positions, prompts and padding elsewhere.
SPANS = [(0, 3, 9), (0, 12, 14), (1, 2, 3), (1, 6, 16)]
SHAPE = (2, 18)


@pytest.fixture(scope="module")
def golden(shared_data):
    return json.loads((shared_data.parent / "objective_golden.json").read_text())


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    mask, ids = np.zeros(SHAPE, bool), np.zeros(SHAPE, np.int32)
    for number, (row, start, stop) in enumerate(SPANS):
        mask[row, start:stop] = True
        ids[row, start - 1 : stop] = number + 1  # with the prompt's last token

    def tokens(center, spread):
        return np.where(mask, rng.normal(center, spread, SHAPE), 0)

    old = tokens(-2, 0.5)
    advantages = np.zeros(SHAPE)
    for row, start, stop in SPANS:
        advantages[row, start:stop] = rng.normal(0, 1)
    return {
        "policy_logprobs": old + tokens(0, 0.6),
        "old_logprobs": old,
        "sampler_logprobs": old + tokens(0, 0.1),
        "advantages": advantages,
        "loss_weights": np.where(mask, rng.random(SHAPE), 0),
        "loss_mask": mask,
        "segments": losses.Segments(ids, mask, np.zeros_like(ids)),
        **EPS,
    }


def _token(name, policy, old, sampler, a, near=False):
    """Loss and its derivative by the policy's log-probability, of one token."""
    rho, (low, high) = np.exp(policy - old), (0.98, 1.03) if near else (0.8, 1.28)
    if name == "cispo":
        weight = min(max(rho, low), high)
        return -weight * a * policy, -weight * a
    if name == "dppo":
        moved = np.exp(policy) - np.exp(sampler)
        out = moved > high - 1 if a > 0 else moved < low - 1
        return (0, 0) if out else (-rho * a, -rho * a)
    held = rho > high if a > 0 else rho < low
    bound = min(max(rho, low), high) if held else rho
    if name == "dual_clip" and a < 0 and -bound * a > -1.5 * a:
        return -1.5 * a, 0
    return -bound * a, 0 if held else -rho * a


def _reference(name, arrays):
    total, gradient = 0.0, np.zeros(SHAPE)
    policy, old, sampler = (
        arrays[f"{n}_logprobs"] for n in ("policy", "old", "sampler")
    )
    advantages, weights = arrays["advantages"], arrays["loss_weights"]
    for row, start, stop in SPANS:
        length = stop - start
        if name == "gspo":
            mean = sum(policy[row, t] - old[row, t] for t in range(start, stop))
            mean /= length
            a = advantages[row, start]
            value, slope = _token("grpo", mean, 0.0, 0.0, a, near=True)
            weight = sum(weights[row, t] for t in range(start, stop))
            total += weight * value
            gradient[row, start:stop] = weight * slope / length
            continue
        for t in range(start, stop):
            value, slope = _token(
                name, policy[row, t], old[row, t], sampler[row, t], advantages[row, t],
                near=name == "dppo",
            )  # fmt: skip
            total += weights[row, t] * value
            gradient[row, t] = weights[row, t] * slope
    return total, gradient


@pytest.mark.parametrize("name", losses.LOSSES)
def test_loss_and_gradient_are_those_of_the_formula(arrays, name):
    expected, slope = _reference(name, arrays)
    # Means of ratios, and differences of probabilities, stray less than a ratio does.
    near = name in ("gspo", "dppo")
    bounds = dict(eps_low=0.02, eps_high=0.03) if near else EPS
    with jax.enable_x64(True):
        arguments = {"bound": 1.5} if name == "dual_clip" else {}
        loss, named = losses.load_loss(name, arguments)

        def weighted(policy):
            given = {**arrays, "policy_logprobs": policy} | bounds
            per_token, _ = loss(**{key: given[key] for key in named})
            return jnp.sum(arrays["loss_weights"] * per_token)

        policy = jnp.asarray(arrays["policy_logprobs"])
        value, gradient = jax.value_and_grad(weighted)(policy)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-10)
    # Tokens within the bounds have been met, and some beyond.
    assert slope.any()
    assert np.sum(slope == 0) > np.sum(~arrays["loss_mask"]) or name == "cispo"


def test_cispo_counts_the_weights_that_it_clips_whatever_the_advantage():
    """PPO's own test would find neither of these two clipped, nor the others not."""
    old = jnp.log(jnp.array([[0.1, 0.5, 0.5, 0.5]]))
    policy = jnp.log(jnp.array([[1.0, 0.1, 0.5, 0.6]]))
    loss, metrics = losses.cispo(
        policy, old, jnp.array([[-1.0, 1.0, -1.0, 1.0]]), eps_low=0.5, eps_high=4.0
    )
    np.testing.assert_allclose(
        loss[0], [0.0, -0.5 * np.log(0.1), np.log(0.5), -1.2 * np.log(0.6)], rtol=1e-6
    )
    assert metrics["clipped_high"].tolist() == [[True, False, False, False]]
    assert metrics["clipped_low"].tolist() == [[False, True, False, False]]


def test_rows_on_other_devices_take_no_part_in_a_completions_sums(arrays):
    mesh = make_mesh(data=2, fsdp=4, tensor=1)
    rows = named_sharding(mesh, "batch")

    def total(policy, segments):
        return jnp.sum(segments.mean(policy) ** 2, axis=1)

    ids = np.tile(arrays["segments"].ids, (4, 1))
    segments = losses.Segments(ids, ids > 0, ids)
    given = jax.device_put((np.ones(ids.shape, np.float32), segments), rows)
    gradient = jax.jit(jax.grad(lambda *x: total(*x).sum()), out_shardings=rows)
    program = gradient.lower(*given).compile().as_text()
    assert "scatter" in program and "all-" not in program.replace("all-reduce", "")
    assert program.count("all-reduce") == 0


def test_estimates_of_the_divergence():
    x = np.linspace(-1.5, 1.5, 7)
    with jax.enable_x64(True):
        for estimate, value, slope in (
            (losses.k1, x, x),  # not 1: a slope of 1 has a mean of 0 under the policy
            (losses.k3, np.exp(-x) - 1 + x, 1 - np.exp(-x)),
        ):
            found, gradient = jax.vmap(jax.value_and_grad(estimate), (0, None))(
                jnp.asarray(x) - 3, -3.0
            )
            np.testing.assert_allclose(found, value, atol=1e-10)
            np.testing.assert_allclose(gradient, slope, atol=1e-10)
            assert np.isfinite(jax.grad(estimate)(200.0, 0.0))


def test_sums_are_of_whole_completions_and_of_nothing_else(arrays):
    segments = arrays["segments"]
    values = np.arange(36.0).reshape(SHAPE)
    values[~arrays["loss_mask"]] = np.nan
    sums, means, lengths = (
        np.asarray(x)
        for x in (segments.sum(values), segments.mean(values), segments.lengths)
    )
    for row, start, stop in SPANS:
        own = values[row, start:stop]
        assert set(sums[row, start:stop]) == {own.sum()}
        assert set(means[row, start:stop]) == {np.float32(own.mean())}
        assert set(lengths[row, start:stop]) == {stop - start}
    assert not sums[~arrays["loss_mask"]].any()


@pytest.mark.parametrize("clip", [None, 3.0, 10.0])
def test_the_mean_over_tokens_reproduces_the_oracle(golden, clip):
    """Three completions of 4, 3 and 2 tokens."""
    with jax.enable_x64(True):
        old = jnp.array(golden["old_logprobs"], jnp.float64)
        policy = old + jnp.array(golden["policy_minus_old"], jnp.float64)
        advantages = jnp.array(golden["advantages_per_row"], jnp.float64)[:, None]
        advantages = jnp.broadcast_to(advantages, policy.shape)
        weights = (np.arange(4) < np.array([[4], [3], [2]])) / 9
        bounds = {key: golden[key] for key in ("eps_low", "eps_high")}

        def loss(policy):
            if clip is None:
                per_token, _ = losses.grpo(policy, old, advantages, **bounds)
            else:
                per_token, _ = losses.dual_clip(
                    policy, old, advantages, **bounds, bound=clip
                )
            return jnp.sum(weights * per_token)

        value, gradient = jax.value_and_grad(loss)(policy)
        key = "none" if clip is None else f"dual_clip_{clip:.0f}"
        assert abs(float(value) - golden["loss"]["token"][key]) < 1e-7
        total = float(jnp.abs(gradient).sum())
        assert abs(total - golden["sum_abs_grad"]["token"][key]) < 1e-7


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(
    ("low", "high", "ratio"),
    [(0.0, 0.0, 1.0), (0.0, 0.28, 1.0), (0.2, 0.0, 1.0), (0.2, 0.28, 1.0)]
    + [(0.5, 0.5, 0.5), (0.5, 0.5, 1.5)],
)
def test_on_a_bound_the_gradient_is_whole(low, high, ratio, advantage):
    def loss(ratio):
        bounds = dict(eps_low=jnp.float32(low), eps_high=jnp.float32(high))
        return losses.clipped(ratio, jnp.float32(advantage), **bounds)[0]

    value, slope = jax.value_and_grad(loss)(jnp.float32(ratio))
    assert (value, slope) == (-ratio * advantage, -advantage)


@pytest.mark.parametrize("eps", [0.0, 0.2])
def test_beyond_a_bound_only_the_side_that_may_go_back_has_a_gradient(eps):
    def slope(ratio, advantage):
        def loss(ratio):
            return losses.clipped(ratio, advantage, eps_low=eps, eps_high=eps)[0]

        return float(jax.grad(loss)(jnp.float32(ratio)))

    assert slope(1 - eps - 0.01, -1.0) == 0 and slope(1 - eps - 0.01, 1.0) == -1
    assert slope(1 + eps + 0.01, 1.0) == 0 and slope(1 + eps + 0.01, -1.0) == 1


@pytest.mark.failure(23)
def test_a_huge_log_ratio_stays_finite():
    value, metrics = losses.grpo(
        jnp.array([200.0, -200.0]), jnp.zeros(2), jnp.array([-1.0, -1.0]), **EPS
    )
    assert np.isfinite(value).all() and np.isfinite(metrics["ratio"]).all()
    assert float(metrics["ratio"][0]) == pytest.approx(np.exp(20.0), rel=1e-5)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("ppo", {}, "='ppo': must be one of grpo, .*, or 'module:function'"),
        ("nowhere:loss", {}, "='nowhere:loss': cannot be imported"),
        ("os.path:join", {}, "='os.path:join': its argument 'a' has no value"),
        ("grpo", {"bound": 3.0}, "_args.bound=3.0: unknown key"),
        ("dual_clip", {"bound": 0.0}, "_args.bound=0.0: must be above 0"),
        ("grpo", {"eps_low": 0.1}, "_args.eps_low=0.1: is passed to every loss"),
    ],
)
@pytest.mark.failure(33)
def test_what_is_no_loss_is_one_line_that_names_it(function, arguments, message):
    with pytest.raises(ValueError, match=f"^config.objective.function{message}"):
        losses.load_loss(function, arguments)
