"""The objective: what it adds to a loss, how it weighs it, what it measures."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base, objectives
from rl.groups.advantages import load_advantage
from rl.types import Batch
from rl.update.objective import objective_from_config
from tests.rl.examples import example_hyper

HYPER = example_hyper()


def _objective(**changes):
    config = base.get_config()
    config.objective.update(changes)
    return objective_from_config(base.from_config(config))


@pytest.fixture(scope="module")
def batch():
    """One row of two completions, three and two tokens after prompts of two."""
    rng = np.random.default_rng(0)
    ids = np.array([[1, 1, 1, 1, 1, 2, 2, 2, 2, 0]])
    scored = np.array([[0, 0, 1, 1, 1, 0, 0, 1, 1, 0]], bool)

    def tokens():
        return np.where(scored, rng.normal(-2, 0.3, ids.shape), 0)

    return Batch.padding(1, 10).replace(
        segment_ids=ids,
        loss_mask=scored,
        advantages=np.where(ids == 1, 1.0, -1.0) * scored,
        loss_weights=0.2 * scored,
        old_logprobs=tokens(),
        sampler_logprobs=tokens(),
        reference_logprobs=tokens(),
    )


def _loss_and_slopes(objective, batch, policy, entropy):
    def loss(policy, entropy):
        return objective.loss(policy, entropy, batch, HYPER)

    (value, stats), slopes = jax.value_and_grad(loss, (0, 1), has_aux=True)(
        policy, entropy
    )
    return float(value), *map(np.asarray, slopes), stats


@pytest.mark.failure(45)
def test_an_entropy_bonus_has_a_gradient(batch):
    policy = jnp.where(batch.loss_mask, -2.0, 0)
    entropy = jnp.where(batch.loss_mask, 1.5, 0)
    given = batch, policy, entropy
    plain, of_policy, of_entropy, _ = _loss_and_slopes(_objective(), *given)
    assert not of_entropy.any()
    with_bonus = _objective(entropy_bonus=0.1)
    value, same, of_entropy, _ = _loss_and_slopes(with_bonus, *given)
    assert value == pytest.approx(plain - 0.1 * 1.5)
    np.testing.assert_array_equal(same, of_policy)
    np.testing.assert_allclose(of_entropy, -0.1 * batch.loss_weights, rtol=1e-6)


@pytest.mark.parametrize("estimate", ["k1", "k3"])
def test_a_penalty_for_leaving_the_base_asks_for_it_and_is_logged(batch, estimate):
    with jax.enable_x64(True):
        policy = jnp.where(batch.loss_mask, -2.0, 0)
        entropy = jnp.zeros(policy.shape)
        given = batch, policy, entropy
        plain, slope, _, _ = _loss_and_slopes(_objective(), *given)
        objective = _objective(kl_penalty=0.5, kl_estimate=estimate)
        value, slope_with, _, stats = _loss_and_slopes(objective, *given)
    assert objective.needs_reference and not _objective().needs_reference
    x = (-2.0 - batch.reference_logprobs)[batch.loss_mask]
    kl = x if estimate == "k1" else np.exp(-x) - 1 + x
    assert value == pytest.approx(plain + 0.5 * 0.2 * kl.sum(), abs=1e-10)
    assert stats["sum"]["kl_reference"] == pytest.approx(kl.sum())
    of_kl = x if estimate == "k1" else 1 - np.exp(-x)
    added = (slope_with - slope)[batch.loss_mask]
    np.testing.assert_allclose(added, 0.1 * of_kl, atol=1e-10)


@pytest.mark.parametrize("extra", [{}, {"entropy_bonus": 0.3}, {"kl_penalty": 0.5}])
def test_off_policy_tokens_are_weighed_in_every_term(batch, extra):
    """Weights min(e^(old - sampler), 2) multiply the loss, the entropy and the KL."""
    policy = jnp.asarray(batch.old_logprobs)
    entropy = jnp.where(batch.loss_mask, 1.5, 0.0)
    gaps = np.where(batch.loss_mask, np.log([[0.25, 4.0] * 5]), 0)
    plain = _loss_and_slopes(_objective(**extra), batch, policy, entropy)
    odd = batch.replace(
        sampler_logprobs=batch.old_logprobs - gaps, off_policy=batch.loss_mask.copy()
    )
    weighed = _loss_and_slopes(_objective(**extra), odd, policy, entropy)
    sums, tokens = weighed[3]["sum"], int(batch.loss_mask.sum())
    weights = np.where(gaps > 0, 2.0, 0.25)
    assert sums["off_policy"] == sums["tokens"] == tokens
    assert sums["correction"] == pytest.approx(weights[batch.loss_mask].sum())
    for i in (1, 2):
        expected = np.where(batch.loss_mask, weights * plain[i], 0)
        np.testing.assert_allclose(weighed[i], expected, atol=1e-10)


@pytest.mark.parametrize("name", [n for n in vars(objectives) if n.isupper()])
def test_every_preset_is_whole(name):
    preset = getattr(objectives, name)
    config = base.get_config()
    config.objective.update(preset)
    objective_from_config(base.from_config(config))
    load_advantage(config.objective.advantage)
    keys = "function advantage aggregation correction correction_cap eps_low eps_high"
    assert preset.keys() == set(keys.split())


def scalar(policy_logprobs, advantages):
    return -jnp.mean(policy_logprobs * advantages), {}


def taken(policy_logprobs):
    return -policy_logprobs, {"tokens": policy_logprobs}


def broken(policy_logprobs):
    return policy_logprobs.nothing


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            scalar,
            r"the loss has the shape \[\] for arrays of shape \[2, 8\]; return one",
        ),
        (taken, "the metric name 'tokens' is reserved; rename"),
        (broken, "fails on .*AttributeError: .* has no attribute .?nothing"),
    ],
)
def test_a_loss_of_the_wrong_kind_is_refused_before_it_runs(loss, message):
    with pytest.raises(ValueError, match=f"^config.objective.function=.*: {message}"):
        _objective(function=f"{__name__}:{loss.__name__}")


def of_all(
    policy_logprobs, old_logprobs, sampler_logprobs, reference_logprobs, entropy
):
    """A loss of whatever a loss may name."""
    others = sampler_logprobs + reference_logprobs + entropy
    return -jnp.exp(policy_logprobs - old_logprobs) * others, {}


@functools.partial(jax.jit, static_argnums=0)
def _scored(function, batch, hyper, policy, entropy):
    """Loss, statistics and gradient."""
    loss = _objective(function=function, kl_penalty=0.1, entropy_bonus=0.1).loss
    return jax.value_and_grad(loss, (0, 1), has_aux=True)(policy, entropy, batch, hyper)


def _with_outside(function, first, **outside):
    """Makes a row in which two tokens count; the others have the value `outside`."""
    inside = np.array([[False, True, True, False]])

    def row(here, name):
        return np.where(inside, here, outside.get(name, 0.0)).astype(np.float32)

    logprobs = {"old": -1.5, "sampler": -1.4, "reference": -1.3}
    batch = Batch.padding(1, 4).replace(
        loss_mask=inside,
        off_policy=np.ones((1, 4), bool),
        advantages=row(1.0, "advantages"),
        loss_weights=(inside / 2).astype(np.float32),
        **{f"{name}_logprobs": row(x, name) for name, x in logprobs.items()},
    )
    batch, hyper = jax.tree.map(jnp.asarray, (batch, example_hyper(first_update=first)))
    values = jnp.asarray(row(-1.45, "policy")), jnp.asarray(row(0.7, "entropy"))
    return jax.device_get(_scored(function, batch, hyper, *values))


@pytest.mark.failure(23)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", ["policy", "old", "sampler", "reference", "entropy"])
@pytest.mark.parametrize("function", ["grpo", f"{__name__}:of_all"])
def test_what_does_not_count_is_masked_before_arithmetic(function, name, first):
    """0 * inf is NaN: in the loss, in its statistics and, by where, in its gradient."""
    clean = _with_outside(function, first)
    (loss, _), gradients = clean
    assert np.isfinite(loss) and loss != 0
    for gradient in gradients:
        assert gradient[0, 1] != 0 and not gradient[0, [0, 3]].any()
    for value in (200.0, -200.0, np.inf, -np.inf, np.nan):
        found = _with_outside(function, first, **{name: value})
        np.testing.assert_equal(found, clean)
