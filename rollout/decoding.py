"""The sampler's programs: prefill, insert into slots, decode, narrow.

Axes: B slots, Q rows of T positions in which prompts are read, R completions of one
insertion, S cached positions, W new tokens at most, K kv heads, H head width.
"""

import dataclasses
import functools

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from models.cache import Entries, KVCache, Places
from models.decoder import head_table
from models.inference import InferenceDecoder
from rollout.inverse_cdf import Split, draw_tokens
from rollout.layout import Pace
from rollout.prompts import Rows
from rollout.types import SamplingParams
from sharding.rules import constrain, laid_out, mesh_axes, shards, spec


@flax.struct.dataclass
class Slots:
    """The decode state of B slots.

    Attributes:
      cache: keys and values of all tokens but the last.
      token: int32 `[B]`, the last token, not yet in the cache.
      uniforms: float32 `[B, W, 2]`, what each of its tokens will be drawn with.
      count: int32 `[B]`, tokens drawn so far.
      limit: int32 `[B]`, the most that are drawn.
      done: bool `[B]`, ended or never begun.
      token_ids: int32 `[B, W]`.
      logprobs: float32 `[B, W]`.
    """

    cache: KVCache
    token: jax.Array
    uniforms: jax.Array
    count: jax.Array
    limit: jax.Array
    done: jax.Array
    token_ids: jax.Array
    logprobs: jax.Array


@flax.struct.dataclass
class Dynamic:
    """Sampling parameters as arrays: changing them compiles nothing.

    Attributes:
      temperature, top_p: float32 scalars; see `rollout.inverse_cdf.draw_tokens`.
      stop_ids: int32 `[8]`, padded with -1; longer only where there are more.
    """

    temperature: jax.Array
    top_p: jax.Array
    stop_ids: jax.Array


def dynamic_params(params: SamplingParams) -> Dynamic:
    """Returns the parameters that all completions of a call share."""
    return Dynamic(
        temperature=jnp.float32(params.temperature),
        top_p=jnp.float32(params.top_p),
        stop_ids=_stop_ids(params),
    )


def _stop_ids(params: SamplingParams) -> jax.Array:
    """Pads to a fixed shape with an id that no token has."""
    ids = () if params.ignore_stop else params.stop_token_ids
    size = max(8, len(ids))
    return jnp.asarray([*ids, *[-1] * (size - len(ids))], jnp.int32)


def _specs(state: Slots) -> Slots:
    """Slots are split like rows, the cache also by kv heads."""
    lead = [None] * (state.cache.k[0].ndim - 4)
    cache, page = spec(*lead, "batch", "kv_heads"), spec(*lead, "kv_heads")
    specs = jax.tree.map(lambda _: spec("batch"), state)
    return specs.replace(
        cache=specs.cache.replace(
            k=(cache,) * len(state.cache.k),
            v=(cache,) * len(state.cache.v),
            clock=spec(),
            page=jax.tree.map(lambda _: page, state.cache.page),
        )
    )


def shardings(state: Slots, mesh: Mesh) -> Slots:
    """Returns the layout of each array."""
    return jax.tree.map(lambda part: NamedSharding(mesh, part), _specs(state))


def _pin(state: Slots, mesh: Mesh) -> Slots:
    return jax.lax.with_sharding_constraint(state, shardings(state, mesh))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def empty(
    model: InferenceDecoder, batch: int, size: int, width: int, page: int = 0
) -> Slots:
    """Makes `batch` idle slots; S = `size`, W = `width`, `page` tokens in common."""
    cache = KVCache.zeros(
        model.config, batch, size, model.dtype, stacked=model.stacked, page=page
    )
    assert model.mesh is not None
    state = Slots(
        cache=cache,
        token=jnp.zeros(batch, jnp.int32),
        uniforms=jnp.zeros((batch, width, 2), jnp.float32),
        count=jnp.zeros(batch, jnp.int32),
        limit=jnp.zeros(batch, jnp.int32),
        done=jnp.ones(batch, bool),
        token_ids=jnp.zeros((batch, width), jnp.int32),
        logprobs=jnp.zeros((batch, width), jnp.float32),
    )
    return _pin(state, model.mesh)


@functools.partial(jax.jit, static_argnums=0)
def prefill(model, params, rows: Rows) -> tuple[Entries, Entries]:
    """Reads prompts.

    Args:
      model, params: a `InferenceDecoder` and its parameters.
      rows: arrays `[Q, T]`. Copies beyond the Q-th read nothing.

    Returns:
      k `[L, Q, K, H, T]` and v `[L, Q, K, T, H]` of the layers, as in `KVCache`.
    """
    mesh, count = model.mesh, len(rows.ids)
    idle = -count % shards("batch", mesh)
    rows = jax.tree.map(lambda x: jnp.pad(x, ((0, idle), (0, 0))), rows)
    rows = jax.lax.with_sharding_constraint(rows, laid_out(mesh, "batch"))
    _, k, v = model(
        params, rows.ids, rows.positions, rows.segments, prefix_ids=rows.prefixes
    )
    lead = [None] * (k[0].ndim - 4)
    # Copied to slots on other devices: every copy gets all, once per block of prompts.
    whole = laid_out(mesh, *lead, None, "kv_heads")
    if idle:
        k, v = _first_rows(mesh, lead, count, (k, v))
    return jax.lax.with_sharding_constraint((k, v), whole)


def _first_rows(mesh, lead, count: int, entries):
    """Puts the first `count` of rows that are split over the copies on each copy.

    The partitioner would give every copy all rows. Here each copy adds its own.
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
def insert(
    mesh, state: Slots, root, k, v, places: Places, slot, last, limit, path
) -> Slots:
    """Begins completions.

    Args:
      mesh: of the state.
      state: donated.
      root: uint32 `[2]`, the call's random key.
      k, v: as `prefill` returns them for Q rows.
      places: in these of each completion's prompt, but for its last token.
      slot: int32 `[R]`, where each completion goes, all different; B or more: nowhere.
      last: int32 `[R]`, its prompt's last token.
      limit: int32 `[R]`, the most tokens of it.
      path: uint32 `[R, 2]`, numbers of the prompt and of the completion in the call.
    """

    # All tokens at once: one hash costs the same as hundreds.
    def uniforms(pair):
        base = jax.random.wrap_key_data(root)
        own = jax.random.fold_in(jax.random.fold_in(base, pair[0]), pair[1])
        keys = jax.vmap(lambda count: jax.random.fold_in(own, count))(
            jnp.arange(state.token_ids.shape[1])
        )
        return jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys)

    def put(array, value):
        return array.at[slot].set(value, mode="drop", unique_indices=True)

    state = dataclasses.replace(
        state,
        cache=state.cache.filled(k, v, places, slot),
        token=put(state.token, last),
        uniforms=put(state.uniforms, jax.vmap(uniforms)(path)),
        count=put(state.count, 0),
        limit=put(state.limit, limit),
        done=put(state.done, False),
    )
    return _pin(state, mesh)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def decode(
    model, pace: Pace, nucleus: bool, params, state: Slots, dynamic: Dynamic, wake
):
    """Decodes until at least `wake` slots are done, or for `pace.call` tokens.

    Between two checks only sums of `[B, D]` over the devices of a copy are exchanged,
    and the few numbers of a draw.

    Args:
      model, params: an `InferenceDecoder` and its parameters.
      pace: tokens between two checks of what has ended, and in all.
      nucleus: whether `dynamic.top_p` is used; each case is a program.
      state: donated.
      dynamic: how tokens are drawn and when a completion ends.
      wake: int32.

    Returns:
      The state; and done, count, token_ids and logprobs, replicated, so that all
      processes decide alike.
    """
    mesh = model.mesh
    table = head_table(params)
    accumulate = jnp.promote_types(model.dtype, jnp.float32)

    width = state.token_ids.shape[1]
    # Left to the partitioner, indexing along a row gathers the rows of all devices.
    rows, words = spec("batch"), spec("batch", "vocab")
    split = Split(mesh_axes("vocab") if shards("vocab", mesh) > 1 else ())
    draw_rows = jax.shard_map(
        lambda logits, uniforms, count, temperature, top_p: draw_tokens(
            logits,
            uniforms.at[jnp.arange(count.size), count].get(mode="clip"),
            temperature,
            top_p,
            split,
            nucleus=nucleus,
            one_pass=pace.one_pass,
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
            cache.page_length + cache.length[:, None],
            jnp.ones_like(state.token)[:, None],
            cache,
            longest,
        )
        logits = jnp.einsum(
            "bd,vd->bv", hidden[:, 0], table, preferred_element_type=accumulate
        ).astype(jnp.float32)
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

    # Between two checks the longest row follows from the first of them.
    def longest(state: Slots) -> jax.Array:
        return jnp.max(jnp.where(state.done, 0, state.cache.length))

    def some(drawn: jax.Array, state: Slots) -> tuple[jax.Array, Slots]:
        _, state = jax.lax.fori_loop(
            0,
            pace.tokens,
            lambda i, carry: (carry[0], body(carry[0] + i, carry[1])),
            (longest(state), state),
            unroll=pace.tokens == 1,
        )
        return drawn + pace.tokens, state

    _, state = jax.lax.while_loop(
        lambda carry: (carry[0] < pace.call) & (jnp.sum(carry[1].done) < wake),
        lambda carry: some(*carry),
        (jnp.int32(0), state),
    )
    drawn = state.done, state.count, state.token_ids, state.logprobs
    return (
        _pin(state, mesh),
        jax.lax.with_sharding_constraint(drawn, laid_out(mesh)),
    )


def narrow(mesh, state: Slots, keep) -> Slots:
    """Moves completions into fewer slots, array by array to save memory.

    Args:
      mesh: of the state.
      state: not to be used again.
      keep: int32 `[fewer]`, the slots to keep, numbered within each group of devices
        that share rows; the same number for each group, group after group.
    """

    def part(array, layout):
        if spec("batch")[0] not in layout:  # of no slot
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
