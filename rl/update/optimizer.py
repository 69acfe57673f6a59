"""Defines the optimizer, the learning-rate schedule and the `Hyper` of each update."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from configs import base
from rl.errors import user_code
from rl.problems.functions import load_named
from rl.types import Hyper, make_hyper

ADAMW = "adamw"


def make_optimizer(
    settings: base.Optimizer, *, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Builds the optimizer at learning rate 1; the step applies the learning rate.

    The default is AdamW (arXiv 1711.05101) after clipping by the global norm. Weight
    decay does not apply to norms and biases. Moments are updated in float32 and stored
    in `moments_dtype`.

    `settings.function` may name a user's "module:function". This function takes no
    arguments and returns an `optax.GradientTransformation` at learning rate 1. The only
    other setting that then applies is `max_grad_norm`.
    """
    function = settings.function
    clip = optax.clip_by_global_norm(settings.max_grad_norm or math.inf)
    if function != ADAMW:
        key = "config.optimizer.function"
        make = load_named(function, {ADAMW: optax.adamw}, key=key)
        own = user_code(f"{key}={function!r}")(make)()
        if not (hasattr(own, "init") and hasattr(own, "update")):
            raise ValueError(
                f"{key}={function!r}: returned {type(own).__name__}; it must return an"
                " optax.GradientTransformation"
            )
        return optax.chain(clip, own)
    adam = optax.scale_by_adam(b1=settings.b1, b2=settings.b2, eps=eps)
    return optax.chain(
        clip,
        _rest_in(adam, jnp.dtype(settings.moments_dtype)),
        optax.add_decayed_weights(settings.weight_decay, mask=_matrices),
        optax.scale(-1.0),
    )


def check_descends(optimizer: optax.GradientTransformation, *, key: str) -> None:
    """Raises ValueError if an update increases the loss on a small example."""
    params, grads = {"kernel": jnp.ones((2, 2))}, {"kernel": jnp.eye(2) - 0.5}
    try:
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        change = float(jnp.vdot(updates["kernel"], grads["kernel"]))
    except Exception:  # it may need the names or shapes of the model's parameters
        return
    if change > 0:
        raise ValueError(
            f"{key}: its updates have the sign of the gradient, which increases the"
            " loss; end the chain with optax.scale(-1.0)"
        )


def _matrices(params) -> dict:
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not path[-1].key.endswith(("norm", "bias")), params
    )


def _rest_in(inner: optax.GradientTransformation, dtype: jnp.dtype):
    """Updates moments in float32 or wider; stores them in `dtype` if that is 16-bit."""

    def cast(state, narrow: bool):
        def of(x):
            if not jnp.issubdtype(x.dtype, jnp.floating):
                return x
            return x.astype(dtype if narrow else jnp.promote_types(x.dtype, "float32"))

        return jax.tree.map(of, state)

    stored = dtype.itemsize < 4

    def init(params):
        return cast(inner.init(params), stored)

    def update(updates, state, params=None):
        updates, state = inner.update(updates, cast(state, False), params)
        return updates, cast(state, stored)

    return optax.GradientTransformation(init, update)


def make_schedule(settings: base.Schedule) -> Callable[[int], float]:
    """Returns a function from the number of updates done to the learning rate.

    The rate rises linearly over `warmup_updates`, starting above 0. It then stays
    constant, or decays to 0 over `decay_updates` and stays at 0.
    """
    peak, warmup = settings.learning_rate, settings.warmup_updates
    after = {
        "constant": lambda: optax.constant_schedule(peak),
        "linear": lambda: optax.linear_schedule(peak, 0.0, settings.decay_updates),
        "cosine": lambda: optax.cosine_decay_schedule(peak, settings.decay_updates),
    }
    rest = after[settings.decay]()

    def schedule(update: int) -> float:
        if update < warmup:
            return peak * (update + 1) / (warmup + 1)
        return float(rest(update - warmup))

    return schedule


def make_hypers(c: base.RunConfig, *, updates: int, mini_batches: int) -> list[Hyper]:
    """Returns a `Hyper` for each update of a step.

    `c` is the config of the step's stage. `updates` counts earlier updates.
    """
    schedule = make_schedule(c.schedule)
    return [
        make_hyper(
            learning_rate=schedule(updates + i),
            eps_low=c.objective.eps_low,
            eps_high=c.objective.eps_high,
            temperature=c.rollout.temperature,
            first_update=i == 0,
        )
        for i in range(mini_batches * c.batch.ppo_epochs)
    ]
