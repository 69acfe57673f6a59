"""Defines the jitted update: gradient accumulation, then one optimizer step."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, no_type_check

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jaxtyping import Float, Int32

from configs.schema import Count
from models import lora
from models.decoder import Decoder, Params, abstract_params, param_shardings
from rl.types import Batch, Hyper
from rl.update.examine import digest
from rl.update.objective import Objective, token_logprobs
from sharding.rules import named_sharding

Stats = dict[str, Any]
# Gradients, loss and statistics, accumulated over the micro-batches so far. Gradients
# are summed in float32 or wider, because bfloat16 sums round to one part in 256.
Carry = tuple[Params, Float[jax.Array, ""], Stats]
Score = Callable[[Params, Batch, Hyper], Float[jax.Array, "R T"]]
Updated = tuple["TrainState", Stats]  # the new state, and statistics of the update


@no_type_check  # fields may also hold shardings or shapes instead of arrays
class TrainState(flax.struct.PyTreeNode):
    """Holds the training state.

    An update is skipped if its loss, its gradient or the resulting state is not finite.
    """

    params: Params  # all parameters, or the LoRA adapters; float32 by default
    opt_state: optax.OptState
    updates: Int32[jax.Array, ""]  # optimizer steps so far, without skipped updates
    skipped: Int32[jax.Array, ""]  # consecutive updates skipped up to now
    skipped_in_all: Int32[jax.Array, ""]  # since the run began
    # The reference model in the compute dtype, if `objective.reset_every` resets it.
    reference: Params = flax.struct.field(default_factory=dict)


class Step(NamedTuple):
    """Holds the functions of a training step and their shardings.

    `update(TrainState, micro-batches, Hyper, base=None)` runs `zeros`, `accumulate` for
    each micro-batch, then `apply`. With LoRA, `base` holds the frozen parameters.
    `init` takes the trained parameters. `score`, `zeros` and `accumulate` take trained
    and frozen parameters in one tree. All functions but `score` and `zeros` donate
    their first argument.
    """

    init: Callable[[Params], TrainState]
    score: Score
    update: Callable[..., Updated]
    zeros: Callable[[Params, Batch, Hyper], Carry]
    accumulate: Callable[[Carry, Params, Batch, Hyper], Carry]
    apply: Callable[[TrainState, Carry, Hyper], Updated]
    shardings: TrainState  # of every array of the state
    rows: NamedSharding  # of the arrays of a `Batch`


def make_step(
    model: Decoder,
    optimizer: optax.GradientTransformation,
    objective: Objective,
    *,
    head_chunk: Count,
    offload_optimizer: bool = False,
) -> Step:
    """Builds the functions of a training step.

    Args:
      model: the decoder, with a mesh.
      optimizer: optimizer at learning rate 1 (see `rl.update.optimizer`).
      head_chunk: number of tokens per device whose logits are computed at a time.
      offload_optimizer: whether the optimizer state stays in host memory between
        updates, so that it takes no device memory while gradients are computed.
    """
    mesh = model.mesh
    assert mesh is not None
    on_device = _state_shardings(model, optimizer, mesh)
    if objective.keeps_reference:
        on_device = on_device.replace(reference=on_device.params)
    shardings = on_device
    if offload_optimizer:
        on_host = jax.tree.map(
            lambda s: s.with_memory_kind("pinned_host"), on_device.opt_state
        )
        shardings = on_device.replace(opt_state=on_host)
    whole = named_sharding(mesh)
    logprobs = functools.partial(token_logprobs, model, chunk=head_chunk)

    def loss(
        trained: Params, base: Params, batch: Batch, hyper: Hyper
    ) -> tuple[Float[jax.Array, ""], Stats]:
        params = lora.join(trained, base)
        policy, entropy = logprobs(params, batch, temperature=hyper.temperature)
        with jax.named_scope("loss"):
            return objective.loss(policy, entropy, batch, hyper)

    def init(params: Params) -> TrainState:
        zero = jnp.zeros((), jnp.int32)
        copied = params if objective.keeps_reference else {}
        return TrainState(
            params=params,
            opt_state=optimizer.init(params),
            updates=zero,
            skipped=zero,
            skipped_in_all=zero,
            reference=jax.tree.map(lambda x: x.astype(model.dtype), copied),
        )

    gradient = jax.value_and_grad(loss, has_aux=True)

    def zeros(params: Params, batch: Batch, hyper: Hyper) -> Carry:
        shapes = jax.eval_shape(gradient, *lora.split(params), batch, hyper)
        loss_and_stats, grads = shapes
        sums = jax.tree.map(lambda x: jnp.zeros(x.shape, summed_in(x.dtype)), grads)
        value, stats = jax.tree.map(jnp.zeros_like, loss_and_stats)
        stats["max"] = jax.tree.map(lambda x: x - jnp.inf, stats["max"])
        return sums, value, stats

    def accumulate(carry: Carry, params: Params, batch: Batch, hyper: Hyper) -> Carry:
        grads, value, stats = carry
        (v, s), g = gradient(*lora.split(params), batch, hyper)
        grads, value = jax.tree.map(jnp.add, grads, g), value + v
        stats = {
            "sum": jax.tree.map(jnp.add, stats["sum"], s["sum"]),
            "max": jax.tree.map(jnp.maximum, stats["max"], s["max"]),
        }
        return grads, value, stats

    @jax.named_scope("optimizer")
    def propose(
        state: TrainState, carry: Carry, hyper: Hyper
    ) -> tuple[Params, optax.OptState]:
        def stepped(param, update):
            return param + (hyper.learning_rate * update).astype(param.dtype)

        grads, _, _ = carry
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        return jax.tree.map(stepped, state.params, updates), opt_state

    def apply(state: TrainState, carry: Carry, hyper: Hyper) -> Updated:
        grads, value, stats = carry
        norm = optax.tree.norm(grads)
        if offload_optimizer:
            moved = jax.device_put(state.opt_state, on_device.opt_state)
            state = state.replace(opt_state=moved)
        finite = jnp.isfinite(norm) & jnp.isfinite(value)
        for leaf in jax.tree.leaves(propose(state, carry, hyper)):
            finite &= jnp.all(jnp.isfinite(leaf))
        # The new state is computed a second time. Keeping the first result until the
        # check ends would hold the old and the new state in memory together.
        state, carry, finite = jax.lax.optimization_barrier((state, carry, finite))
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            propose(state, carry, hyper),
            (state.params, state.opt_state),
        )
        if offload_optimizer:
            opt_state = jax.device_put(opt_state, shardings.opt_state)
        new = TrainState(
            params=params,
            opt_state=opt_state,
            updates=state.updates + finite,
            skipped=jnp.where(finite, 0, state.skipped + 1),
            skipped_in_all=state.skipped_in_all + ~finite,
            reference=state.reference,
        )
        of_update = {
            "loss": value,
            "grad_norm": norm,
            "grad_digest": digest(grads),
            "skipped": ~finite,
            "skipped_in_a_row": new.skipped,
        }
        return new, stats | of_update

    of_carry = (shardings.params, whole, whole)
    zeros_jit = jax.jit(zeros, out_shardings=of_carry)
    accumulate_jit = jax.jit(accumulate, out_shardings=of_carry, donate_argnums=0)
    apply_jit = jax.jit(apply, out_shardings=(shardings, whole), donate_argnums=0)

    def update(
        state: TrainState,
        batches: Sequence[Batch],
        hyper: Hyper,
        base: Params | None = None,
    ) -> Updated:
        params = lora.join(state.params, base)
        carry = zeros_jit(params, batches[0], hyper)
        for batch in batches:
            carry = accumulate_jit(carry, params, batch, hyper)
        return apply_jit(state, carry, hyper)

    return Step(
        init=jax.jit(init, out_shardings=shardings, donate_argnums=0),
        score=make_score(model, head_chunk),
        update=update,
        zeros=zeros_jit,
        accumulate=accumulate_jit,
        apply=apply_jit,
        shardings=shardings,
        rows=named_sharding(mesh, "batch"),
    )


def make_score(model: Decoder, head_chunk: int) -> Score:
    """Returns a jitted function that computes the log-probabilities of a batch."""
    assert model.mesh is not None
    logprobs = functools.partial(token_logprobs, model, chunk=head_chunk)

    def score(params: Params, batch: Batch, hyper: Hyper) -> Float[jax.Array, "R T"]:
        return logprobs(params, batch, temperature=hyper.temperature)[0]

    return jax.jit(score, out_shardings=named_sharding(model.mesh, "batch"))


def summed_in(dtype: jax.typing.DTypeLike) -> jnp.dtype:
    """Returns the dtype for sums of gradients in `dtype`: float32 or wider."""
    return jnp.promote_types(dtype, jnp.float32)


def _state_shardings(model, optimizer, mesh) -> TrainState:
    shapes, _ = lora.split(abstract_params(model)[0])
    params, _ = lora.split(param_shardings(model, mesh))
    whole = named_sharding(mesh)
    # An optimizer array's path ends with the path of the parameter it belongs to.
    owners = dict(jax.tree_util.tree_leaves_with_path(shapes))
    of_owners = dict(jax.tree_util.tree_leaves_with_path(params))

    def sharding_of(path, leaf):
        for owner in (path[start:] for start in range(len(path))):
            if owner in owners and owners[owner].shape == leaf.shape:
                return of_owners[owner]
        return whole

    opt_state = jax.tree_util.tree_map_with_path(
        sharding_of, jax.eval_shape(optimizer.init, shapes)
    )
    names = ("updates", "skipped", "skipped_in_all")
    counters: dict[str, Any] = dict.fromkeys(names, whole)
    return TrainState(params=params, opt_state=opt_state, **counters)
