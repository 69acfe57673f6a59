"""The objective: KL-free, clip-higher GRPO, token by token.

A loss is a pure function of arrays. How tokens are averaged is no choice made here:
each token's weight comes from the host (`rl.groups.token_weights`), and the loss of a
mini-batch is one weighted sum, however it is cut into micro-batches and rows.

Source: Compass-Thinker-7B (arXiv 2508.08909) section 3; DAPO (arXiv 2503.14476) eq. 8
to 12; dual clip (arXiv 1912.09729) eq. 5. The paper prints the ratio of whole responses
inside a sum over tokens; like DAPO and verl we take the token's own ratio.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from models.qwen2 import Params, Qwen2, head_table
from rl.head import score_tokens
from rl.types import Batch, Hyper

_MAX_LOG_RATIO = 20.0


def surrogate(
    policy_logprobs: jax.Array,
    old_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    eps_low: jax.Array | float,
    eps_high: jax.Array | float,
    dual_clip: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The clipped surrogate of every token; arrays of one shape.

    `-min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A)` with
    `rho = exp(policy_logprobs - old_logprobs)`, the exponent held within +-20.

    Args:
      policy_logprobs: of the current parameters; the only one with a gradient.
      old_logprobs: of the parameters at the start of the step.
      advantages: of the tokens' completions.
      eps_low: distance of the lower bound from 1.
      eps_high: distance of the upper bound from 1 ("clip-higher": above `eps_low`).
      dual_clip: where A < 0 the loss is at most `dual_clip * |A|`; None leaves it
        unbounded, as the paper does.

    Returns:
      The loss and the ratio of every token.
    """
    log_ratio = policy_logprobs - jax.lax.stop_gradient(old_logprobs)
    ratio = jnp.exp(jnp.clip(log_ratio, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))
    clipped = jnp.clip(ratio, 1 - eps_low, 1 + eps_high)
    loss = -jnp.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is not None:
        bound = dual_clip * jnp.abs(advantages)
        loss = jnp.where(advantages < 0, jnp.minimum(loss, bound), loss)
    return loss, ratio


def truncate(log_weight: jax.Array, cap: float) -> jax.Array:
    """Truncated importance weights, `min(exp(x), cap)`."""
    return jnp.exp(jnp.minimum(log_weight, jnp.log(cap)))


def mask(log_weight: jax.Array, cap: float) -> jax.Array:
    """Keeps a token, at weight 1, only where `1/cap <= exp(x) <= cap`."""
    return (jnp.abs(log_weight) <= jnp.log(cap)).astype(log_weight.dtype)


CORRECTIONS: dict[str, Callable[[jax.Array, float], jax.Array]] = {
    "truncate": truncate,
    "mask": mask,
}


def token_logprobs(
    model: Qwen2,
    params: Params,
    batch: Batch,
    *,
    temperature: float,
    mesh: Mesh,
    chunk: int,
) -> tuple[jax.Array, jax.Array]:
    """Log-probability and entropy of producing each scored token, both `[R, T]`.

    The single place where hidden states and the tokens that they produce are shifted
    against each other.
    """
    hidden = model.apply(
        {"params": params},
        batch.token_ids,
        batch.positions,
        batch.segment_ids,
        prefix_ids=batch.prefix_ids,
    )
    target_ids = jnp.roll(batch.token_ids, -1, axis=1)
    wanted = jnp.roll(batch.scored, -1, axis=1).at[:, -1].set(False)
    scale = jnp.asarray(temperature, jnp.promote_types(hidden.dtype, jnp.float32))
    logprobs, entropy = score_tokens(
        hidden, head_table(params), target_ids, wanted, scale, mesh, chunk
    )
    return jnp.roll(logprobs, 1, axis=1), jnp.roll(entropy, 1, axis=1)


def batch_loss(
    policy_logprobs: jax.Array,
    entropy: jax.Array,
    batch: Batch,
    hyper: Hyper,
    *,
    dual_clip: float | None,
    correction: str,
    correction_cap: float,
) -> tuple[jax.Array, dict[str, dict[str, jax.Array]]]:
    """The weighted loss of packed rows and what is measured on the way.

    Off-policy tokens (drawn by another version, or by a sampler that is not the
    trainer) are weighted by `CORRECTIONS[correction]` of `old - sampler`, detached.

    Returns:
      The scalar loss (a sum: weights carry the normaliser), and `{"sum": {...},
      "max": {...}}` of token statistics, which add up, or take the maximum, over
      micro-batches.
    """
    scored = batch.scored
    detached = jax.lax.stop_gradient(policy_logprobs)
    # A mask is not enough: 0 * inf is NaN, in the gradient too.
    policy = jnp.where(scored, policy_logprobs, 0)
    given = jnp.where(scored, batch.old_logprobs, 0)
    sampled = jnp.where(scored, batch.sampler_logprobs, 0)
    detached = jnp.where(scored, detached, 0)
    old = jnp.where(hyper.first, detached, given)

    loss, ratio = surrogate(
        policy,
        old,
        batch.advantages,
        eps_low=hyper.eps_low,
        eps_high=hyper.eps_high,
        dual_clip=dual_clip,
    )
    off_policy = scored & batch.off_policy
    log_weight = jnp.clip(old - sampled, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    weight = CORRECTIONS[correction](log_weight, correction_cap)
    weight = jax.lax.stop_gradient(jnp.where(off_policy, weight, 1))
    total = jnp.sum(batch.loss_weights * weight * loss)

    def count(where, value=1.0):
        return jnp.sum(jnp.where(where, value, 0.0))

    def largest(value):
        return jnp.max(jnp.where(scored, value, 0.0))

    ratio = jax.lax.stop_gradient(ratio)
    gap = jnp.abs(detached - sampled)
    drift = jnp.abs(detached - given)
    positive = batch.advantages > 0
    negative = batch.advantages < 0
    sums = {
        "tokens": count(scored),
        "entropy": count(scored, entropy),
        "clipped_low": count(scored & negative & (ratio < 1 - hyper.eps_low)),
        "clipped_high": count(scored & positive & (ratio > 1 + hyper.eps_high)),
        "ratio": count(scored, ratio),
        "kl_old_policy": count(scored, old - detached),
        "sampler_gap": count(scored, gap),
        "old_gap": count(scored, drift),
        "off_policy": count(off_policy),
        "correction": count(off_policy, weight),
        "correction_squared": count(off_policy, weight**2),
    }
    if dual_clip is not None:
        sums["dual_clipped"] = count(scored & negative & (ratio > dual_clip))
    maxima = {
        "ratio": largest(ratio),
        "sampler_gap": largest(gap),
        "old_gap": largest(drift),
        "correction": jnp.max(jnp.where(off_policy, weight, 0.0)),
    }
    return total, {"sum": sums, "max": maxima}
