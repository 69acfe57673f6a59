"""Defines the objective: the loss and the metrics of a micro-batch.

    sum over tokens of  w c (f - entropy_bonus H + kl_penalty KL)

* f is the surrogate loss `objective.function` (`rl.update.losses`).
* w is the averaging weight of the token (`rl.groups.packing`). The host computes it per
  mini-batch, so the split into micro-batches and rows does not change the loss.
* c corrects off-policy tokens, which were sampled by another policy version or by a
  sampler other than the trainer. With the correction "truncate", c is a truncated
  importance weight without gradient. For on-policy tokens, and with other corrections
  (`rl.update.rejection`), c is 1.
* H and KL are the entropy and the KL estimate; the Compass-Thinker paper uses neither.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from configs.base import RunConfig
from models.decoder import Decoder, Params, head_table
from rl.types import Batch, Scalar
from rl.update.head import score_tokens
from rl.update.losses import MAX_LOG_RATIO, Segments, k1, k3, load_loss

Stats = dict[str, dict[str, Float[jax.Array, ""]]]

TRUNCATE = "truncate"  # a value of objective.correction
KL_ESTIMATES = {"k1": k1, "k3": k3}


class Objective(NamedTuple):
    """Holds the function that the update minimizes.

    `loss(policy_logprobs [R, T], entropy [R, T], Batch, Hyper)` returns the weighted
    sum over tokens, and statistics `{"sum": {name: x}, "max": {name: x}}`. Over
    the micro-batches of an update, the step adds "sum" and takes the maximum of "max".
    """

    loss: Callable[..., tuple[Float[jax.Array, ""], Stats]]
    needs_reference: bool  # the loss reads `Batch.reference_logprobs`
    keeps_reference: bool  # training resets the reference, and checkpoints contain it


# Names of the statistics of every objective; metrics of a loss must not use them.
MEASURED = frozenset(
    "tokens entropy kl_old_policy fresh sampler_gap stale_gap old_gap off_policy"
    " correction correction_squared rejected".split()
)


def objective_from_config(c: RunConfig) -> Objective:
    """Builds the objective of a run from `config.objective`.

    The correction "truncate" multiplies the weight of off-policy tokens by
    `min(exp(old - sampler), correction_cap)`. Raises ValueError if
    `objective.function` or its arguments are not valid.
    """
    o = c.objective
    surrogate, named = load_loss(o.function, o.function_args)
    _check_result(surrogate, named, f"config.objective.function={o.function!r}")
    needs_reference = o.kl_penalty > 0 or "reference_logprobs" in named

    def loss(policy_logprobs, entropy, batch, hyper):
        loss_mask = batch.loss_mask
        # Multiplying by the mask is not enough: 0 * inf is NaN, also in the gradient.
        policy = jnp.where(loss_mask, policy_logprobs, 0)
        recorded_old = jnp.where(loss_mask, batch.old_logprobs, 0)
        sampled = jnp.where(loss_mask, batch.sampler_logprobs, 0)
        detached = jax.lax.stop_gradient(policy)
        entropy = jnp.where(loss_mask, entropy, 0)
        old = jnp.where(hyper.first_update, detached, recorded_old)
        segments = Segments(batch.segment_ids, loss_mask, batch.group_ids)
        arrays = {
            "policy_logprobs": policy,
            "old_logprobs": jax.lax.stop_gradient(old),
            "sampler_logprobs": sampled,
            "entropy": entropy,
            "advantages": batch.advantages,
            "loss_weights": batch.loss_weights,
            "loss_mask": loss_mask,
            "segments": segments,
            "eps_low": hyper.eps_low,
            "eps_high": hyper.eps_high,
        }
        if needs_reference:
            reference = jnp.where(loss_mask, batch.reference_logprobs, 0)
            arrays["reference_logprobs"] = reference
        per_token, metrics = surrogate(**{name: arrays[name] for name in named})

        off_policy = loss_mask & batch.off_policy
        log_weight = jnp.clip(old - sampled, -MAX_LOG_RATIO, MAX_LOG_RATIO)
        weight = jnp.ones_like(log_weight)
        if o.correction == TRUNCATE:  # other corrections: `rl.update.rejection`
            weight = jnp.exp(jnp.minimum(log_weight, jnp.log(o.correction_cap)))
        weight = jax.lax.stop_gradient(jnp.where(off_policy, weight, 1))
        # The importance weight also applies to the entropy and KL terms.
        weights = batch.loss_weights * weight
        total = jnp.sum(weights * per_token)
        if o.entropy_bonus:
            total -= o.entropy_bonus * jnp.sum(weights * entropy)
        if o.kl_penalty:
            kl = KL_ESTIMATES[o.kl_estimate](policy, reference)
            total += o.kl_penalty * jnp.sum(weights * kl)

        def count(where, value=1.0):
            return jnp.sum(jnp.where(where, value, 0.0))

        def largest(value, where=loss_mask, at_least=0.0):
            return jnp.max(jnp.where(where, value, at_least))

        # On fresh tokens sampler and trainer should differ by rounding only. On stale
        # tokens they also differ by the updates since.
        fresh = loss_mask & ~batch.stale
        gap = jnp.abs(detached - sampled)
        drift = jnp.abs(detached - recorded_old)
        sums = {
            "tokens": count(loss_mask),
            "entropy": count(loss_mask, entropy),
            "kl_old_policy": count(loss_mask, old - detached),
            "fresh": count(fresh),
            "sampler_gap": count(fresh, gap),
            "stale_gap": count(loss_mask & batch.stale, gap),
            "old_gap": count(loss_mask, drift),
            "off_policy": count(off_policy),
            "correction": count(off_policy, weight),
            "correction_squared": count(off_policy, weight**2),
        }
        maxima = {
            "sampler_gap": largest(gap, fresh),
            "old_gap": largest(drift),
            "correction": largest(weight, off_policy),
        }
        if o.kl_penalty:
            sums["kl_reference"] = count(loss_mask, kl)
        for name, value in jax.lax.stop_gradient(metrics).items():
            if value.dtype == bool:
                sums[name] = count(loss_mask & value)
            else:
                sums[name] = count(loss_mask, value)
                maxima[name] = largest(value, at_least=-jnp.inf)
        return total, {"sum": sums, "max": maxima}

    return Objective(loss, needs_reference, needs_reference and o.reset_every > 0)


def _check_result(surrogate, named, key: str) -> None:
    """Raises ValueError if a loss fails, or returns wrong shapes or metric names."""
    tokens = {d: jax.ShapeDtypeStruct((2, 8), d) for d in (np.float32, np.int32, bool)}
    of_segments: Any = (tokens[np.int32], tokens[bool], tokens[np.int32])
    arrays: dict[str, Any] = dict.fromkeys(named, tokens[np.float32]) | {
        "loss_mask": tokens[bool],
        "segments": Segments(*of_segments),
        "eps_low": jax.ShapeDtypeStruct((), np.float32),
        "eps_high": jax.ShapeDtypeStruct((), np.float32),
    }
    try:
        result = jax.eval_shape(surrogate, **{name: arrays[name] for name in named})
        loss, metrics = result
        shapes = {"the loss": loss.shape, **{k: v.shape for k, v in metrics.items()}}
    except Exception as error:  # a user's function may raise anything
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{key}: fails on arrays of shape [2, 8] ({type(error).__name__}:"
            f" {reason}); correct the function"
        ) from None
    for name, shape in shapes.items():
        if shape != (2, 8):
            raise ValueError(
                f"{key}: {name} has the shape {list(shape)} for arrays of shape [2, 8];"
                " return one value per token, which config.objective.aggregation"
                " averages"
            )
    if taken := {*MEASURED, "kl_reference"} & metrics.keys():
        raise ValueError(
            f"{key}: the metric name {min(taken)!r} is reserved; rename the metric"
        )


def token_logprobs(
    model: Decoder,
    params: Params,
    batch: Batch,
    *,
    temperature: float | Scalar,
    chunk: int,
) -> tuple[Float[jax.Array, "R T"], Float[jax.Array, "R T"]]:
    """Computes log-probabilities and entropies of tokens; both 0 outside the mask.

    The hidden state at position t - 1 predicts the token at position t. The results are
    shifted, so that entry t belongs to `token_ids[t]`. The model has a mesh.
    """
    assert model.mesh is not None
    hidden: Any = model.apply(
        {"params": params},
        batch.token_ids,
        batch.positions,
        batch.segment_ids,
        prefix_ids=batch.prefix_ids,
    )
    target_ids = jnp.roll(batch.token_ids, -1, axis=1)
    wanted = jnp.roll(batch.loss_mask, -1, axis=1).at[:, -1].set(False)
    scale = jnp.asarray(temperature, jnp.promote_types(hidden.dtype, jnp.float32))
    logprobs, entropy = score_tokens(
        hidden, head_table(params), target_ids, wanted, scale, model.mesh, chunk
    )
    return jnp.roll(logprobs, 1, axis=1), jnp.roll(entropy, 1, axis=1)


def update_metrics(stats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the metrics of a step, from the statistics of each of its updates.

    Most metrics are means or maxima over the tokens of all updates. The gaps between
    log-probabilities (`*_gap*`) are from the first update only.
    """

    def total(key, some=stats):
        return float(sum(s["sum"][key] for s in some))

    def mean(key, per="tokens", some=stats):
        count = total(per, some)
        return total(key, some) / count if count else 0.0

    metrics = {
        "policy/loss": float(np.mean([s["loss"] for s in stats])),
        "policy/grad_norm": float(np.mean([s["grad_norm"] for s in stats])),
        "policy/entropy": mean("entropy"),
        "policy/kl_old_policy": mean("kl_old_policy"),
        "policy/skipped": float(sum(s["skipped"] for s in stats)),
        "policy/skipped_in_a_row": float(max(s["skipped_in_a_row"] for s in stats)),
        "off_policy/tokens": mean("off_policy"),
    }
    first = stats[:1]
    # In the first update the policy is still the version that sampled fresh tokens.
    fresh, drawn = total("fresh", first), total("tokens", first)
    if fresh:
        metrics["policy/sampler_gap_mean"] = total("sampler_gap", first) / fresh
        metrics["policy/sampler_gap_max"] = float(first[0]["max"]["sampler_gap"])
    if drawn > fresh:
        metrics["off_policy/stale_gap"] = total("stale_gap", first) / (drawn - fresh)
    if len(stats) > 1:  # one update alone needs no old log-probabilities
        metrics["policy/old_gap_mean"] = mean("old_gap", some=first)
        metrics["policy/old_gap_max"] = float(first[0]["max"]["old_gap"])
    if total("off_policy"):
        count, weights = total("off_policy"), total("correction")
        metrics |= {
            "off_policy/weight_mean": weights / count,
            "off_policy/weight_max": float(max(s["max"]["correction"] for s in stats)),
            "off_policy/effective_sample_size": weights**2
            / max(count * total("correction_squared"), 1e-30),
        }
    if "rejected" in stats[0]["sum"]:
        rejected = total("rejected")
        metrics["off_policy/rejected"] = rejected / max(rejected + total("tokens"), 1)
    for name in stats[0]["sum"].keys() - MEASURED:  # metrics of the loss function
        if name in stats[0]["max"]:
            metrics[f"policy/{name}_mean"] = mean(name)
            metrics[f"policy/{name}_max"] = float(max(s["max"][name] for s in stats))
        else:
            metrics[f"policy/{name}"] = mean(name)
    return metrics
