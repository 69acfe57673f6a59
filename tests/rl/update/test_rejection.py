"""Rejected off-policy tokens: which, and that nothing of them is left."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from rl.groups.packing import weigh
from rl.update.losses import LOSSES
from rl.update.objective import TRUNCATE, objective_from_config
from rl.update.rejection import geometric, make_rejection, mask, reject
from tests.rl.examples import example_hyper, make_group, make_segments, pack

COMPLETIONS = np.array([1, 1, 2, 2, 2])
LOG_WEIGHTS = np.log([0.4, 0.5, 1.0, 2.0, 2.1])
EVERY = np.ones(5, bool)


def test_a_mask_keeps_tokens_within_the_cap():
    kept = mask(LOG_WEIGHTS, EVERY, COMPLETIONS, 2.05)
    assert kept.tolist() == [False, True, True, True, False]
    assert mask(LOG_WEIGHTS, ~EVERY, COMPLETIONS, 1.0).all()


def test_the_geometric_mean_keeps_or_drops_whole_completions():
    # Geometric means: sqrt(0.2) = 1 / 2.24 and cbrt(4.2) = 1.61.
    kept = geometric(LOG_WEIGHTS, EVERY, COMPLETIONS, 2.05)
    assert kept.tolist() == [False, False, True, True, True]


def test_a_partly_stale_completion_goes_as_a_whole_by_its_stale_tokens_mean():
    stale = np.array([True, False, True, True, False])
    # Means over the stale tokens: 1 / 2.5 and sqrt(2) = 1.41.
    kept = geometric(LOG_WEIGHTS, stale, COMPLETIONS, 2.05)
    assert kept.tolist() == [False, False, True, True, True]


def halves(log_weights, off_policy, completions, cap):
    return np.full(len(log_weights), 0.5)


def one_weight(log_weights, off_policy, completions, cap):
    return np.ones(1)


def test_a_users_rejection_is_named_by_its_import_path():
    def made(correction):
        config = base.get_config()
        config.objective.correction = correction
        return make_rejection(base.from_config(config))

    assert made("truncate") is None
    assert made(f"{__name__}:halves").keywords["rejection"] is halves
    with pytest.raises(ValueError, match="config.objective.correction='nope'"):
        made("nope")


def _packed(gap):
    group = make_group([True, False], lengths=[2, 3], prompt=2)
    (batch,) = pack(make_segments([group], off_policy=True), (12,), 12)
    far = np.where(batch.loss_mask & (batch.positions == 2), gap, 0)
    return [batch.replace(old_logprobs=batch.sampler_logprobs + far.astype(np.float32))]


@pytest.mark.parametrize(
    ("function", "correction", "aggregation"),
    [
        *((function, "mask", "token") for function in LOSSES),
        *(("grpo", TRUNCATE, mean) for mean in ("token", "group")),
        *(("grpo", "geometric", mean) for mean in ("sequence", "constant")),
    ],
)
def test_a_token_outside_the_mask_has_no_gradient(function, correction, aggregation):
    """Under every loss, correction and mean, with a KL penalty and an entropy bonus."""
    config = base.get_config()
    config.objective.update(kl_penalty=0.1, entropy_bonus=0.1, function=function)
    config.objective.update(correction=correction, aggregation=aggregation)
    c = base.from_config(config)
    (kept,) = weigh(_packed(gap=2.0), aggregation=aggregation, constant=9)
    if reject_tokens := make_rejection(c):
        (kept,) = reject_tokens([kept])
        # Without each completion's first token, or without the shorter completion.
        assert kept.loss_mask.sum() == 3
    values = jnp.full(kept.loss_mask.shape, -1.9), jnp.ones(kept.loss_mask.shape)
    loss = objective_from_config(c).loss
    slopes, _ = jax.grad(loss, (0, 1), has_aux=True)(*values, kept, example_hyper())
    for slope in map(np.asarray, slopes):
        assert not slope[~kept.loss_mask].any()
        assert slope[kept.loss_mask].any()


def test_what_returns_no_weight_for_each_token_is_one_line():
    with pytest.raises(ValueError, match=r"returned shape \(1,\) .* of shape \(5,\)"):
        c = base.from_config(base.get_config())
        reject(_packed(gap=0.0), rejection=one_weight, c=c)
