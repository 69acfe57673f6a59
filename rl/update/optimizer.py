"""AdamW with fp32 masters, clipped by global norm, and the learning-rate schedule."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from configs.base import RunConfig
from configs.schema import Index, NotNegative, Positive, Share
from rl.problems.functions import load_named

ADAMW = "adamw"


def make_optimizer(
    *,
    function: str = ADAMW,
    b1: Share,
    b2: Share,
    eps: NotNegative = 1e-8,
    weight_decay: NotNegative,
    max_grad_norm: Positive,
    moments_dtype: Literal["float32", "bfloat16"],
) -> optax.GradientTransformation:
    """AdamW (arXiv 1711.05101) at learning rate 1; the step multiplies by its own.

    Args:
      function: "adamw", or a user's "module:function" that takes no arguments and
        returns an `optax.GradientTransformation` at learning rate 1. Of the other
        arguments it meets only `max_grad_norm`.
      b1, b2, eps: as in Adam.
      weight_decay: decoupled, on matrices only (norms and biases are left alone).
      max_grad_norm: the gradient's global norm is scaled down to this.
      moments_dtype: in which both moments rest between updates; they are updated in
        float32. bfloat16 halves the state, and loses second-moment changes below
        1/256, so `b2` should then not exceed 0.99.
    """
    clip = optax.clip_by_global_norm(max_grad_norm)
    if function != ADAMW:
        key = "config.optimizer.function"
        own = load_named(function, {ADAMW: optax.adamw}, key=key)()
        if not (hasattr(own, "init") and hasattr(own, "update")):
            raise ValueError(
                f"{key}={function!r}: returned {type(own).__name__}; it must return an"
                " optax.GradientTransformation"
            )
        return optax.chain(clip, own)
    return optax.chain(
        clip,
        _rest_in(optax.scale_by_adam(b1=b1, b2=b2, eps=eps), jnp.dtype(moments_dtype)),
        optax.add_decayed_weights(weight_decay, mask=_matrices),
        optax.scale(-1.0),
    )


def optimizer_from_config(c: RunConfig) -> optax.GradientTransformation:
    """Build the optimizer of a config."""
    return make_optimizer(
        function=c.optimizer.function,
        b1=c.optimizer.b1,
        b2=c.optimizer.b2,
        weight_decay=c.optimizer.weight_decay,
        max_grad_norm=c.optimizer.max_grad_norm,
        moments_dtype=c.optimizer.moments_dtype,
    )


def _matrices(params) -> dict:
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not path[-1].key.endswith(("norm", "bias")), params
    )


def _rest_in(inner: optax.GradientTransformation, dtype: jnp.dtype):
    """Keeps `inner`'s floating-point state in `dtype` between updates."""

    def cast(state, to):
        return jax.tree.map(
            lambda x: x.astype(to(x)) if jnp.issubdtype(x.dtype, jnp.floating) else x,
            state,
        )

    def wide(x):
        return jnp.promote_types(x.dtype, jnp.float32)

    def narrow(x):
        return dtype if dtype.itemsize < 4 else wide(x)

    def init(params):
        return cast(inner.init(params), narrow)

    def update(updates, state, params=None):
        updates, state = inner.update(updates, cast(state, wide), params)
        return updates, cast(state, narrow)

    return optax.GradientTransformation(init, update)


def make_schedule(
    *,
    learning_rate: Positive,
    warmup_updates: Index,
    decay: Literal["constant", "linear", "cosine"],
    decay_updates: Index,
) -> Callable[[int], float]:
    """Learning rate by the number of updates done.

    Args:
      learning_rate: the peak.
      warmup_updates: linear from 0; the first update already has a rate above 0.
      decay: "constant", "linear" or "cosine", after the warm-up.
      decay_updates: updates from the warm-up's end to a rate of 0.
    """
    after = {
        "constant": lambda: optax.constant_schedule(learning_rate),
        "linear": lambda: optax.linear_schedule(learning_rate, 0.0, decay_updates),
        "cosine": lambda: optax.cosine_decay_schedule(learning_rate, decay_updates),
    }
    rest = after[decay]()

    def schedule(update: int) -> float:
        if update < warmup_updates:
            return learning_rate * (update + 1) / (warmup_updates + 1)
        return float(rest(update - warmup_updates))

    return schedule


def schedule_from_config(c: RunConfig) -> Callable[[int], float]:
    """Build the learning-rate schedule of a config."""
    return make_schedule(
        learning_rate=c.schedule.learning_rate,
        warmup_updates=c.schedule.warmup_updates,
        decay=c.schedule.decay,
        decay_updates=c.schedule.decay_updates,
    )
