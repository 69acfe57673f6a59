"""The jitted update: gradients over micro-batches, then one optimizer application."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.qwen2 import Params, Qwen2, abstract_params, param_shardings
from rl.objective import batch_loss, token_logprobs
from rl.types import Batch, Hyper
from sharding.rules import replicated

Stats = dict[str, Any]


@flax.struct.dataclass
class TrainState:
    """What an update turns into its successor.

    Attributes:
      params: master parameters, float32 by default.
      opt_state: the optimizer's.
      updates: int32, optimizer applications so far; skipped ones do not count.
      skipped: int32, updates skipped in a row for a gradient that is not finite.
    """

    params: Params
    opt_state: optax.OptState
    updates: jax.Array
    skipped: jax.Array


class Step(NamedTuple):
    """The compiled functions of one model, mesh and set of static choices.

    Attributes:
      init: `params -> TrainState`; the parameters are donated.
      score: `(params, Batch) -> old_logprobs [R, T]`.
      update: `(TrainState, micro-batches, Hyper) -> (TrainState, Stats)`; the state is
        donated. Its programs are `zeros`, `accumulate` for each micro-batch, `apply`.
      zeros: `(params, Batch, Hyper) -> carry`, gradients and statistics of nothing.
      accumulate: `(carry, params, Batch, Hyper) -> carry`; the carry is donated.
      apply: `(TrainState, carry, Hyper) -> (TrainState, Stats)`; the state is donated.
      shardings: of the `TrainState`.
      rows: sharding of a `Batch`'s arrays.
    """

    init: Callable[[Params], TrainState]
    score: Callable[[Params, Batch], jax.Array]
    update: Callable[[TrainState, Sequence[Batch], Hyper], tuple[TrainState, Stats]]
    zeros: Callable[[Params, Batch, Hyper], Any]
    accumulate: Callable[[Any, Params, Batch, Hyper], Any]
    apply: Callable[[TrainState, Any, Hyper], tuple[TrainState, Stats]]
    shardings: TrainState
    rows: NamedSharding


def make_step(
    model: Qwen2,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    temperature: float,
    head_chunk: int,
    dual_clip: float | None,
    correction: str,
    correction_cap: float,
    offload: bool = False,
) -> Step:
    """Builds the functions of a training step.

    Args:
      model: knows its mesh, dtypes and remat policy.
      optimizer: at learning rate 1 (see `rl.optimizer`).
      mesh: rows are split over data and fsdp.
      temperature: at which completions are drawn; log-probabilities are taken there.
      head_chunk: tokens per device that meet the vocabulary at a time.
      dual_clip, correction, correction_cap: see `rl.objective`.
      offload: whether the optimizer's state rests in the host's memory, so that it and
        the activations never share the device's.
    """
    on_device = _state_shardings(model, optimizer, mesh)
    shardings = _at_rest(on_device) if offload else on_device
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    whole = replicated(mesh)

    def logprobs(params, batch):
        return token_logprobs(
            model,
            params,
            batch,
            temperature=temperature,
            mesh=mesh,
            chunk=head_chunk,
        )

    def loss(params, batch, hyper):
        policy, entropy = logprobs(params, batch)
        return batch_loss(
            policy,
            entropy,
            batch,
            hyper,
            dual_clip=dual_clip,
            correction=correction,
            correction_cap=correction_cap,
        )

    def init(params):
        zero = jnp.zeros((), jnp.int32)
        return TrainState(
            params=params, opt_state=optimizer.init(params), updates=zero, skipped=zero
        )

    gradient = jax.value_and_grad(loss, has_aux=True)

    def zeros(params, batch, hyper):
        (value, stats), grads = jax.eval_shape(gradient, params, batch, hyper)
        return jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), (grads, value, stats)
        )

    def accumulate(carry, params, batch, hyper):
        grads, value, stats = carry
        (v, s), g = gradient(params, batch, hyper)
        return (
            jax.tree.map(jnp.add, grads, g),
            value + v,
            {
                "sum": jax.tree.map(jnp.add, stats["sum"], s["sum"]),
                "max": jax.tree.map(jnp.maximum, stats["max"], s["max"]),
            },
        )

    def apply(state, carry, hyper):
        grads, value, stats = carry
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(norm) & jnp.isfinite(value)
        old = state.opt_state
        if offload:
            old = jax.device_put(old, on_device.opt_state)
        updates, opt_state = optimizer.update(grads, old, state.params)
        params = jax.tree.map(
            lambda p, u: p + (hyper.learning_rate * u).astype(p.dtype),
            state.params,
            updates,
        )
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            (params, opt_state),
            (state.params, old),
        )
        if offload:
            opt_state = jax.device_put(opt_state, shardings.opt_state)
        new = TrainState(
            params=params,
            opt_state=opt_state,
            updates=state.updates + finite,
            skipped=jnp.where(finite, 0, state.skipped + 1),
        )
        return new, {**stats, "loss": value, "grad_norm": norm, "skipped": new.skipped}

    carry_shardings = (shardings.params, whole, whole)
    init_jit = jax.jit(init, out_shardings=shardings, donate_argnums=0)
    score_jit = jax.jit(lambda p, b: logprobs(p, b)[0], out_shardings=rows)
    zeros_jit = jax.jit(zeros, out_shardings=carry_shardings)
    accumulate_jit = jax.jit(
        accumulate, out_shardings=carry_shardings, donate_argnums=0
    )
    apply_jit = jax.jit(apply, out_shardings=(shardings, whole), donate_argnums=0)

    def update(state, batches, hyper):
        carry = zeros_jit(state.params, batches[0], hyper)
        for batch in batches:
            carry = accumulate_jit(carry, state.params, batch, hyper)
        return apply_jit(state, carry, hyper)

    return Step(
        init=init_jit,
        score=score_jit,
        update=update,
        zeros=zeros_jit,
        accumulate=accumulate_jit,
        apply=apply_jit,
        shardings=shardings,
        rows=rows,
    )


def _at_rest(shardings: TrainState) -> TrainState:
    host = jax.tree.map(
        lambda s: s.with_memory_kind("pinned_host"), shardings.opt_state
    )
    return shardings.replace(opt_state=host)


def _state_shardings(model, optimizer, mesh) -> TrainState:
    """Moments live where their parameters live; counters everywhere."""
    shapes, _ = abstract_params(model)
    params = param_shardings(model, mesh)
    whole = replicated(mesh)
    opt_state = optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, shapes),
        params,
        transform_non_params=lambda _: whole,
    )
    return TrainState(params=params, opt_state=opt_state, updates=whole, skipped=whole)
