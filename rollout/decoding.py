"""Defines the jitted programs of the sampler.

Axes: B slots, Q prefilled rows of T positions, R completions of one insertion, S cached
positions, W maximum new tokens, K kv heads, H head width.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.typing import ArrayLike

from models.cache import Entries, KVCache, Spans
from models.decoder import head_table
from models.inference import InferenceDecoder
from rollout.inverse_cdf import draw_tokens
from rollout.layout import PlatformSettings
from rollout.prompts import Rows
from rollout.types import SamplingParams
from sharding.rules import constrain, mesh_axes, named_sharding, shards, spec


@flax.struct.dataclass
class Slots:
    """Represents the decode state of B slots."""

    cache: KVCache  # keys and values of all tokens except the last
    token: jax.Array  # int32 [B], the last token, which is not in the cache yet
    uniforms: jax.Array  # float32 [B, W, 2], random numbers that select each token
    count: jax.Array  # int32 [B], number of tokens sampled so far
    limit: jax.Array  # int32 [B], maximum number of tokens to sample
    done: jax.Array  # bool [B], the completion has ended or the slot is unused
    token_ids: jax.Array  # int32 [B, W], the sampled tokens
    logprobs: jax.Array  # float32 [B, W], their log-probabilities


class Insertion(NamedTuple):
    """Describes R completions to start in free slots."""

    k: Entries  # keys of Q rows, from `prefill`
    v: Entries  # their values
    # Of each completion's prompt in these rows, without the prompt's last token. Here,
    # the prompt of a partial completion includes its tokens so far.
    spans: Spans
    slot: ArrayLike  # int32 [R], all different; B or more drops the completion
    last: ArrayLike  # int32 [R], last token of each completion's prompt
    limit: ArrayLike  # int32 [R], maximum number of tokens to add
    # uint32 [R, 2], index of each completion's prompt, and of the completion among
    # those of the prompt. With the key of the call, they determine its random numbers.
    path: ArrayLike


class Drawn(NamedTuple):
    """Holds fields of `Slots` as results, on devices or as NumPy arrays."""

    done: Any
    count: Any
    token_ids: Any
    logprobs: Any


@flax.struct.dataclass
class Dynamic:
    """Holds sampling parameters as arrays, so that new values need no compilation."""

    temperature: jax.Array  # float32 scalar; see `draw_tokens`
    top_p: jax.Array  # float32 scalar; see `draw_tokens`
    stop_ids: jax.Array  # int32, padded with -1 to 8; more ids need a compilation


def dynamic_params(params: SamplingParams) -> Dynamic:
    ids = () if params.ignore_stop else params.stop_token_ids
    padding = [-1] * (8 - len(ids))
    return Dynamic(
        temperature=jnp.float32(params.temperature),
        top_p=jnp.float32(params.top_p),
        stop_ids=jnp.asarray([*ids, *padding], jnp.int32),
    )


def _specs(state: Slots) -> Slots:
    lead = [None] * (state.cache.k[0].ndim - 4)
    cache, prefix = spec(*lead, "batch", "kv_heads"), spec(*lead, "kv_heads")
    specs = jax.tree.map(lambda _: spec("batch"), state)
    return specs.replace(
        cache=specs.cache.replace(
            k=(cache,) * len(state.cache.k),
            v=(cache,) * len(state.cache.v),
            clock=spec(),
            prefix=jax.tree.map(lambda _: prefix, state.cache.prefix),
        )
    )


def shardings(state: Slots, mesh: Mesh) -> Slots:
    return jax.tree.map(lambda part: NamedSharding(mesh, part), _specs(state))


def _pin(state: Slots, mesh: Mesh) -> Slots:
    return jax.lax.with_sharding_constraint(state, shardings(state, mesh))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def empty(
    model: InferenceDecoder, num_slots: int, size: int, width: int, prefix: int = 0
) -> Slots:
    """Returns a decode state of B = `num_slots` unused slots.

    S is `size` and W is `width`. `prefix` is the length of the prefix that all prompts
    share; 0 for none.
    """
    state = Slots(
        cache=KVCache.zeros(
            model.config,
            num_slots,
            size,
            model.dtype,
            stacked=model.stacked,
            prefix=prefix,
        ),
        token=jnp.zeros(num_slots, jnp.int32),
        uniforms=jnp.zeros((num_slots, width, 2), jnp.float32),
        count=jnp.zeros(num_slots, jnp.int32),
        limit=jnp.zeros(num_slots, jnp.int32),
        done=jnp.ones(num_slots, bool),
        token_ids=jnp.zeros((num_slots, width), jnp.int32),
        logprobs=jnp.zeros((num_slots, width), jnp.float32),
    )
    return _pin(state, model.mesh)


@functools.partial(jax.jit, static_argnums=0)
def prefill(model, params, rows: Rows) -> tuple[Entries, Entries]:
    """Computes the keys and values of packed prompts.

    Returns a tuple of key arrays `[L, Q, K, H, T]`, and a tuple of value arrays
    `[L, Q, K, T, H]`. Each array has L stacked layers; if L is 1, it has no axis L.
    """
    mesh, count = model.mesh, len(rows.ids)
    idle = -count % shards("batch", mesh)
    rows = jax.tree.map(lambda x: jnp.pad(x, ((0, idle), (0, 0))), rows)
    rows = jax.lax.with_sharding_constraint(rows, named_sharding(mesh, "batch"))
    _, k, v = model(
        params, rows.ids, rows.positions, rows.segments, prefix_ids=rows.prefixes
    )
    lead = [None] * (k[0].ndim - 4)
    # Replicate the results over "batch", because slots on any device can need them.
    whole = named_sharding(mesh, *lead, None, "kv_heads")
    if idle:
        k, v = _first_rows(mesh, lead, count, (k, v))
    return jax.lax.with_sharding_constraint((k, v), whole)


def _first_rows(mesh, lead, count: int, entries):
    """Replicates the first `count` rows of arrays that are sharded by rows.

    The other rows are padding, which XLA's partitioner would gather too.
    """
    axes = mesh_axes("batch")

    def first_rows(part):
        own = part.shape[len(lead)]
        at = jax.lax.axis_index(axes) * own + jnp.arange(own)
        shape = (*part.shape[: len(lead)], count, *part.shape[len(lead) + 1 :])
        place = (*[slice(None)] * len(lead), at)
        empty = jnp.zeros(shape, part.dtype)
        mine = empty.at[place].set(part, mode="drop", unique_indices=True)
        return jax.lax.psum(mine, axes)

    return jax.shard_map(
        lambda entries: jax.tree.map(first_rows, entries),
        mesh=mesh,
        in_specs=spec(*lead, "batch", "kv_heads"),
        out_specs=spec(*lead, None, "kv_heads"),
        check_vma=False,
    )(entries)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def insert(mesh, state: Slots, root, new: Insertion) -> Slots:
    """Returns the state with completions started in free slots; donates `state`.

    `root`, uint32 `[2]`, is the random key of the call.
    """

    # Draw for all tokens at once, because hundreds of hashes take as long as one.
    def uniforms(pair):
        base = jax.random.wrap_key_data(root)
        own = jax.random.fold_in(jax.random.fold_in(base, pair[0]), pair[1])
        keys = jax.vmap(lambda count: jax.random.fold_in(own, count))(
            jnp.arange(state.token_ids.shape[1])
        )
        return jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys)

    def put(array, value):
        return array.at[new.slot].set(value, mode="drop", unique_indices=True)

    state = dataclasses.replace(
        state,
        cache=state.cache.filled(new.k, new.v, new.spans, new.slot),
        token=put(state.token, new.last),
        uniforms=put(state.uniforms, jax.vmap(uniforms)(new.path)),
        count=put(state.count, 0),
        limit=put(state.limit, new.limit),
        done=put(state.done, False),
    )
    return _pin(state, mesh)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def decode(
    model,
    settings: PlatformSettings,
    truncates: bool,
    params,
    state: Slots,
    dynamic: Dynamic,
    min_done,
) -> tuple[Slots, Drawn]:
    """Samples until `min_done` slots are done; at most `settings.call` tokens per slot.

    Every `settings.tokens` tokens, the loop checks how many slots are done; all devices
    synchronize for this. `state` is donated. If `truncates` is False, `dynamic.top_p`
    is ignored.

    Returns the new state and its results, which are replicated, so that all processes
    make the same decisions.
    """
    mesh = model.mesh
    table = head_table(params)
    accumulate = jnp.promote_types(model.dtype, jnp.float32)

    width = state.token_ids.shape[1]
    # XLA's partitioner would gather the rows of all devices to index along a row.
    rows, words = spec("batch"), spec("batch", "vocab")
    axes = mesh_axes("vocab") if shards("vocab", mesh) > 1 else ()
    draw_rows = jax.shard_map(
        lambda logits, uniforms, count, temperature, top_p: draw_tokens(
            logits,
            uniforms.at[jnp.arange(count.size), count].get(mode="clip"),
            temperature,
            top_p,
            axes,
            truncates=truncates,
            one_pass=settings.one_pass,
        ),
        mesh=mesh,
        in_specs=(words, rows, rows, spec(), spec()),
        out_specs=(rows, rows),
        check_vma=False,
    )

    def body(longest, state: Slots) -> Slots:
        cache, live = state.cache, ~state.done
        hidden, k, v = model(
            params,
            state.token[:, None],
            cache.prefix_length + cache.length[:, None],
            jnp.ones_like(state.token)[:, None],
            cache,
            longest,
        )
        logits = jnp.einsum(
            "bd,vd->bv", hidden[:, 0], table, preferred_element_type=accumulate
        ).astype(jnp.float32)
        if settings.one_pass:
            # Without the barrier, XLA fuses the division by the temperature into the
            # product. If it then uses cuBLAS, it divides in one more pass.
            logits = jax.lax.optimization_barrier(logits)
        token, logprob = draw_rows(
            constrain(logits, ("batch", "vocab"), mesh),
            state.uniforms,
            state.count,
            dynamic.temperature,
            dynamic.top_p,
        )
        here = live[:, None] & (jnp.arange(width) == state.count[:, None])
        count = state.count + live
        ended = jnp.any(token[:, None] == dynamic.stop_ids, axis=-1)
        ended |= count >= state.limit
        return Slots(
            # Finished rows are still written; nothing reads them.
            cache=dataclasses.replace(
                cache,
                k=k,
                v=v,
                length=cache.length + live,
                clock=(cache.clock + 1) % cache.size,
            ),
            token=jnp.where(live, token, state.token),
            uniforms=state.uniforms,
            count=count,
            limit=state.limit,
            done=state.done | ended,
            token_ids=jnp.where(here, token[:, None], state.token_ids),
            logprobs=jnp.where(here, logprob[:, None], state.logprobs),
        )

    def some(drawn: jax.Array, state: Slots) -> tuple[jax.Array, Slots]:
        # The maximum is computed once per check, and grows by one with each token.
        longest = jnp.max(jnp.where(state.done, 0, state.cache.length))
        _, state = jax.lax.fori_loop(
            0,
            settings.tokens,
            lambda i, carry: (carry[0], body(carry[0] + i, carry[1])),
            (longest, state),
            unroll=settings.tokens == 1,
        )
        return drawn + settings.tokens, state

    _, state = jax.lax.while_loop(
        lambda carry: (carry[0] < settings.call) & (jnp.sum(carry[1].done) < min_done),
        lambda carry: some(*carry),
        (jnp.int32(0), state),
    )
    drawn = Drawn(state.done, state.count, state.token_ids, state.logprobs)
    drawn = jax.lax.with_sharding_constraint(drawn, named_sharding(mesh))
    return _pin(state, mesh), drawn


def compact(mesh, state: Slots, keep) -> Slots:
    """Returns a state with fewer slots; copies one array at a time to save memory.

    `keep` lists the slots to keep, in the order of the copies of the weights, with an
    equal number for each copy. Slots are numbered from 0 within each copy. Arrays of
    `state` with a slot axis are deleted.
    """

    def part(array, layout):
        if spec("batch")[0] not in layout:  # not an array of slots
            return array
        kept = _rows_of(mesh, layout, array, keep)
        array.delete()
        return kept

    return jax.tree.map(part, state, _specs(state))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _rows_of(mesh, layout, array, keep):
    axis = layout.index(spec("batch")[0])
    return jax.shard_map(
        lambda array, keep: jnp.take(array, keep, axis),
        mesh=mesh,
        in_specs=(layout, spec("batch")),
        out_specs=layout,
        check_vma=False,
    )(array, keep)
