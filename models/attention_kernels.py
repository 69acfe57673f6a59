"""Attention over packed rows as Pallas kernels: Mosaic on TPUs, Triton on GPUs.

Flash attention (arXiv 2205.14135, 2307.08691) by segment, with shared prompts: a block
of queries visits only the blocks of keys in which it sees something, and a block of
keys, in the backward pass, only the queries that see it. Query heads share their kv
head's block: keys are neither repeated nor read anew for each.

Axes: B rows, T positions, N query heads, K kv heads, G = N/K heads that share one, H
head width; I blocks of queries, J blocks of keys.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as mosaic
from jax.experimental.pallas import triton

from models.block_attention import visits

_MASKED = -1e30  # finite: a query that sees nothing in a block stays free of NaN
_LANES = 128


class Blocks(NamedTuple):
    """Positions of a block: queries and keys of the forward and the backward pass."""

    q: int
    k: int
    q_back: int
    k_back: int


MOSAIC_BLOCKS = Blocks(128, 256, 128, 256)
TRITON_BLOCKS = Blocks(128, 64, 64, 64)


def mosaic_attention(q, k, v, segment_ids, prefix_ids, interpret: bool) -> jax.Array:
    """For TPUs; see `models.attention.segment_attention`."""
    kernels = Kernels(mosaic_forward, mosaic_d_queries, mosaic_d_keys)
    blocks = MOSAIC_BLOCKS
    return _attention(q, k, v, segment_ids, prefix_ids, kernels, blocks, interpret)


def triton_attention(q, k, v, segment_ids, prefix_ids, interpret: bool) -> jax.Array:
    """For GPUs; see `models.attention.segment_attention`."""
    kernels = Kernels(triton_forward, triton_d_queries, triton_d_keys)
    blocks = TRITON_BLOCKS
    return _attention(q, k, v, segment_ids, prefix_ids, kernels, blocks, interpret)


class Kernels(NamedTuple):
    """A platform's own, each of arrays laid out as `_Rows` says.

    Attributes:
      forward: the output and the log-sum-exp of each query's scores.
      d_queries: the gradient with respect to the queries.
      d_keys: those with respect to keys and values.
    """

    forward: Callable
    d_queries: Callable
    d_keys: Callable


class _Rows(NamedTuple):
    """Which position sees which.

    Attributes:
      ids: int32 `[B, 1, T]`.
      prefixes: int32 `[B, 1, T]`.
      by_query: block pairs of the forward pass: for each block of queries the blocks of
        keys, `[B, I, J]`, and how many `[B, I]`.
      by_query_back: the same in the backward pass's blocks.
      by_key_back: for each block of keys the blocks of queries, `[B, J, I]`, `[B, J]`.
    """

    ids: jax.Array
    prefixes: jax.Array
    by_query: tuple[jax.Array, jax.Array]
    by_query_back: tuple[jax.Array, jax.Array]
    by_key_back: tuple[jax.Array, jax.Array]


def _rows(segment_ids, prefix_ids, blocks: Blocks) -> _Rows:
    by_query, _ = visits(segment_ids, prefix_ids, blocks.q, blocks.k)
    back = visits(segment_ids, prefix_ids, blocks.q_back, blocks.k_back)
    return _Rows(segment_ids[:, None], prefix_ids[:, None], by_query, *back)


def _attention(q, k, v, segment_ids, prefix_ids, kernels, blocks, interpret):
    length, width, sharing = q.shape[1], q.shape[3], q.shape[2] // k.shape[2]
    # A short row is one block, as long as a lane is wide at least.
    longest = max(_LANES, 1 << (length - 1).bit_length())
    blocks = Blocks(*(min(block, longest) for block in blocks))
    pad = -length % max(blocks)
    widen = -width % min(_LANES, 1 << (width - 1).bit_length())

    def heads_first(x):
        """`[B, T, heads, H] -> [B, heads, T, H]`, in whole blocks."""
        x = jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, widen)))
        return x.transpose(0, 2, 1, 3)

    ids, prefixes = (jnp.pad(x, ((0, 0), (0, pad))) for x in (segment_ids, prefix_ids))
    rows = _rows(ids, prefixes, blocks)
    scaled = heads_first(q * jnp.asarray(width**-0.5, q.dtype))
    grouped = scaled.reshape(len(q), -1, sharing, *scaled.shape[2:])
    run = _run(kernels, blocks, interpret)
    mixed = run(grouped, heads_first(k), heads_first(v), rows)
    mixed = mixed.reshape(scaled.shape).transpose(0, 2, 1, 3)
    return mixed[:, :length, :, :width]


@functools.cache
def _run(kernels: Kernels, blocks: Blocks, interpret: bool) -> Callable:
    """`(q [B, K, G, T, H], k and v [B, K, T, H], _Rows) -> [B, K, G, T, H]`."""

    @jax.custom_vjp
    def attend(q, k, v, rows):
        return kernels.forward(q, k, v, rows, blocks, interpret)[0]

    def forward(q, k, v, rows):
        out, logsumexp = kernels.forward(q, k, v, rows, blocks, interpret)
        return out, (q, k, v, rows, out, logsumexp)

    def backward(saved, d_out):
        q, k, v, rows, out, logsumexp = saved
        shift = jnp.sum(out.astype(jnp.float32) * d_out.astype(jnp.float32), axis=-1)
        given = q, k, v, d_out.astype(q.dtype), logsumexp, shift, rows, blocks
        d_q = kernels.d_queries(*given, interpret)
        d_k, d_v = kernels.d_keys(*given, interpret)
        return d_q, d_k, d_v, None

    attend.defvjp(forward, backward)
    return attend


def _seen(q_ids, q_prefixes, k_ids, q_start, k_start, queries_first: bool):
    """`[Q, C]` or, keys first, `[C, Q]`: the keys that each query of a block sees.

    Args:
      q_ids, q_prefixes: int32 `[Q]`.
      k_ids: int32 `[C]`.
      q_start, k_start: position of the blocks' first.
      queries_first: the axes' order in the result.
    """
    shape = (len(q_ids), len(k_ids)) if queries_first else (len(k_ids), len(q_ids))
    q_axis, k_axis = (0, 1) if queries_first else (1, 0)
    ids, prefixes = (jnp.expand_dims(x, k_axis) for x in (q_ids, q_prefixes))
    keys = jnp.expand_dims(k_ids, q_axis)
    q_at = q_start + jax.lax.broadcasted_iota(jnp.int32, shape, q_axis)
    k_at = k_start + jax.lax.broadcasted_iota(jnp.int32, shape, k_axis)
    return ((ids == keys) | (prefixes == keys)) & (q_at >= k_at)


def _dot(a, b, contract: tuple[int, int]):
    """Multiplies two matrices over one axis of each, accumulating in float32."""
    return jax.lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        preferred_element_type=jnp.float32,
    )


# --- TPUs: the grid's last axis goes through the visits, and sums rest in VMEM


class _Grid:
    """Rows, kv heads, blocks, and the blocks of the other side that each visits."""

    def __init__(self, pairs, q):
        """
        Args:
          pairs: order `[B, blocks, visits]` and count `[B, blocks]`.
          q: `[B, K, G, T, H]`.
        """
        order, self.count = pairs
        batch, self.blocks, self.visits = order.shape
        self.shape = batch, q.shape[1], self.blocks, self.visits
        self.sharing, self.width = q.shape[2], q.shape[4]
        # Behind its count a program names its last visit again: nothing is fetched.
        last = jnp.maximum(self.count - 1, 0)[..., None]
        again = jnp.take_along_axis(order, last, axis=-1)
        self.order = jnp.where(jnp.arange(self.visits) <= last, order, again)

    def at(self, b, head, at, n, order, count):
        """The block that a program works for."""
        return at

    def other(self, b, head, at, n, order, count):
        """The block that it visits."""
        return order[(b * self.blocks + at) * self.visits + n]

    def ids(self, block, side):
        return pl.BlockSpec((None, 1, block), lambda *at: (at[0], 0, side(*at)))

    def queries(self, block, side):
        shape = (None, None, self.sharing, block, self.width)
        return pl.BlockSpec(shape, lambda *at: (*at[:2], 0, side(*at), 0))

    def keys(self, block, side):
        shape = (None, None, block, self.width)
        return pl.BlockSpec(shape, lambda *at: (*at[:2], side(*at), 0))

    def by_query(self, block, side):
        """Of a number for each query, `[B, K, G, T]`."""
        shape = (None, None, self.sharing, block)
        return pl.BlockSpec(shape, lambda *at: (*at[:2], 0, side(*at)))

    def backward(self, blocks, *, queries, keys):
        """Of what both backward kernels read, by the side that each block is of."""
        q, k = blocks.q_back, blocks.k_back
        of_ids = self.ids(q, queries), self.ids(q, queries), self.ids(k, keys)
        of_keys = self.keys(k, keys), self.keys(k, keys)
        numbers = self.by_query(q, queries), self.by_query(q, queries)
        heads = self.queries(q, queries)
        return [*of_ids, heads, *of_keys, heads, *numbers]

    def programs(self, order, count):
        """Of the running program: its block, the visited one, and where it stands."""
        b, at, n = (pl.program_id(axis) for axis in (0, 2, 3))
        number = b * self.blocks + at
        other = order[number * self.visits + n]
        return at, other, n == 0, n < count[number], n == self.visits - 1

    def call(self, kernel, arrays, specs, outs, out_specs, scratch, interpret):
        return pl.pallas_call(
            functools.partial(kernel, self),
            grid_spec=mosaic.PrefetchScalarGridSpec(
                num_scalar_prefetch=2,
                grid=self.shape,
                in_specs=specs,
                out_specs=out_specs,
                scratch_shapes=[mosaic.VMEM(shape, jnp.float32) for shape in scratch],
            ),
            out_shape=outs,
            compiler_params=mosaic.CompilerParams(
                dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")
            ),
            interpret=interpret,
        )(self.order.reshape(-1), self.count.reshape(-1), *arrays)


def mosaic_forward(q, k, v, rows: _Rows, blocks: Blocks, interpret: bool):
    """See `Kernels.forward`."""
    grid, c, g = _Grid(rows.by_query, q), blocks.q, q.shape[2]
    return grid.call(
        _mosaic_forward,
        (rows.ids, rows.prefixes, rows.ids, q, k, v),
        [
            grid.ids(c, grid.at),
            grid.ids(c, grid.at),
            grid.ids(blocks.k, grid.other),
            grid.queries(c, grid.at),
            grid.keys(blocks.k, grid.other),
            grid.keys(blocks.k, grid.other),
        ],
        (
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct(q.shape[:4], jnp.float32),
        ),
        (grid.queries(c, grid.at), grid.by_query(c, grid.at)),
        ((g, c, _LANES), (g, c, _LANES), (g, c, grid.width)),
        interpret,
    )


def _mosaic_forward(
    grid, order, count, ids, prefixes, k_ids, q, k, v, out, logsumexp, top, total, mixed
):
    at, other, first, wanted, last = grid.programs(order, count)
    c, width = mixed.shape[1:]

    @pl.when(first)
    def _():
        top[...] = jnp.full(top.shape, _MASKED, jnp.float32)
        total[...] = jnp.zeros(total.shape, jnp.float32)
        mixed[...] = jnp.zeros(mixed.shape, jnp.float32)

    @pl.when(wanted)
    def _():
        starts = at * c, other * k.shape[0]
        seen = _seen(ids[0], prefixes[0], k_ids[0], *starts, queries_first=True)
        for head in range(grid.sharing):
            scores = jnp.where(seen, _dot(q[head], k[...], (1, 1)), _MASKED)
            old = top[head][:, :1]
            new = jnp.maximum(old, jnp.max(scores, axis=1, keepdims=True))
            weights, keep = jnp.exp(scores - new), jnp.exp(old - new)
            added = jnp.sum(weights, axis=1, keepdims=True)
            top[head] = jnp.broadcast_to(new, (c, _LANES))
            total[head] = total[head] * keep + added
            part = _dot(weights.astype(v.dtype), v[...], (1, 0))
            mixed[head] = mixed[head] * keep + part

    @pl.when(last)
    def _():
        for head in range(grid.sharing):
            out[head] = (mixed[head] / total[head][:, :1]).astype(out.dtype)
            logsumexp[head] = (top[head] + jnp.log(total[head]))[:, 0]


def mosaic_d_queries(
    q, k, v, d_out, logsumexp, shift, rows: _Rows, blocks: Blocks, interpret: bool
):
    """See `Kernels.d_queries`."""
    grid, c = _Grid(rows.by_query_back, q), blocks.q_back
    return grid.call(
        _mosaic_d_queries,
        (rows.ids, rows.prefixes, rows.ids, q, k, v, d_out, logsumexp, shift),
        grid.backward(blocks, queries=grid.at, keys=grid.other),
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid.queries(c, grid.at),
        ((q.shape[2], c, grid.width),),
        interpret,
    )


def _mosaic_d_queries(
    grid, order, count, ids, prefixes, k_ids, q, k, v, d_out, logsumexp, shift, d_q, sum
):
    at, other, first, wanted, last = grid.programs(order, count)

    @pl.when(first)
    def _():
        sum[...] = jnp.zeros(sum.shape, jnp.float32)

    @pl.when(wanted)
    def _():
        starts = at * q.shape[1], other * k.shape[0]
        seen = _seen(ids[0], prefixes[0], k_ids[0], *starts, queries_first=True)
        for head in range(grid.sharing):
            scores = jnp.where(seen, _dot(q[head], k[...], (1, 1)), _MASKED)
            weights = jnp.exp(scores - jnp.expand_dims(logsumexp[head], 1))
            d_weights = _dot(d_out[head], v[...], (1, 1))
            d_scores = weights * (d_weights - jnp.expand_dims(shift[head], 1))
            sum[head] += _dot(d_scores.astype(k.dtype), k[...], (1, 0))

    @pl.when(last)
    def _():
        d_q[...] = sum[...].astype(d_q.dtype)


def mosaic_d_keys(
    q, k, v, d_out, logsumexp, shift, rows: _Rows, blocks: Blocks, interpret: bool
):
    """See `Kernels.d_keys`."""
    grid = _Grid(rows.by_key_back, q)
    return grid.call(
        _mosaic_d_keys,
        (rows.ids, rows.prefixes, rows.ids, q, k, v, d_out, logsumexp, shift),
        grid.backward(blocks, queries=grid.other, keys=grid.at),
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (k, v)],
        [grid.keys(blocks.k_back, grid.at)] * 2,
        ((blocks.k_back, grid.width),) * 2,
        interpret,
    )


def _mosaic_d_keys(
    grid,
    order,
    count,
    ids,
    prefixes,
    k_ids,
    q,
    k,
    v,
    d_out,
    logsumexp,
    shift,
    d_k,
    d_v,
    k_sum,
    v_sum,
):
    at, other, first, wanted, last = grid.programs(order, count)

    @pl.when(first)
    def _():
        k_sum[...] = jnp.zeros(k_sum.shape, jnp.float32)
        v_sum[...] = jnp.zeros(v_sum.shape, jnp.float32)

    @pl.when(wanted)
    def _():
        starts = other * q.shape[1], at * k.shape[0]
        seen = _seen(ids[0], prefixes[0], k_ids[0], *starts, queries_first=False)
        for head in range(grid.sharing):
            scores = jnp.where(seen, _dot(k[...], q[head], (1, 1)), _MASKED)
            weights = jnp.exp(scores - jnp.expand_dims(logsumexp[head], 0))
            d_weights = _dot(v[...], d_out[head], (1, 1))
            d_scores = weights * (d_weights - jnp.expand_dims(shift[head], 0))
            v_sum[...] += _dot(weights.astype(v.dtype), d_out[head], (1, 0))
            k_sum[...] += _dot(d_scores.astype(q.dtype), q[head], (1, 0))

    @pl.when(last)
    def _():
        d_k[...] = k_sum[...].astype(d_k.dtype)
        d_v[...] = v_sum[...].astype(d_v.dtype)


# --- GPUs: a program loops over its visits, and sums rest in registers


def _triton_call(kernel, grid, arrays, specs, outs, out_specs, interpret):
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=specs,
        out_specs=out_specs,
        out_shape=outs,
        compiler_params=triton.CompilerParams(
            num_warps=4 if arrays[-1].shape[-1] <= 64 else 8, num_stages=2
        ),
        interpret=interpret,
    )(*arrays)


class _ByQueryHead:
    """A grid `[I, B, N]`: a program has a block of one query head's queries."""

    def __init__(self, pairs, q, block):
        self.order, count = pairs
        self.count = count[..., None]
        batch, kv_heads, self._sharing, self._length, self._width = q.shape
        self._block = block
        self.shape = self._length // block, batch, kv_heads * self._sharing
        most = self.order.shape[2]
        self.pairs = [
            pl.BlockSpec((None, None, n), lambda i, b, head: (b, i, 0))
            for n in (most, 1)
        ]
        self.ids = pl.BlockSpec((None, None, self._length), lambda i, b, h: (b, 0, 0))

    def _head(self, b, head):
        return b, head // self._sharing, head % self._sharing

    def queries(self):
        shape = (None, None, None, self._block, self._width)
        return pl.BlockSpec(shape, lambda i, b, h: (*self._head(b, h), i, 0))

    def by_query(self):
        shape = (None, None, None, self._block)
        return pl.BlockSpec(shape, lambda i, b, h: (*self._head(b, h), i))

    def keys(self):
        shape = (None, None, self._length, self._width)
        return pl.BlockSpec(shape, lambda i, b, h: (*self._head(b, h)[:2], 0, 0))


def triton_forward(q, k, v, rows: _Rows, blocks: Blocks, interpret: bool):
    """See `Kernels.forward`."""
    grid = _ByQueryHead(rows.by_query, q, blocks.q)
    return _triton_call(
        functools.partial(_triton_forward, blocks.k),
        grid.shape,
        (grid.order, grid.count, rows.ids, rows.prefixes, q, k, v),
        [*grid.pairs, grid.ids, grid.ids, grid.queries(), grid.keys(), grid.keys()],
        (
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct(q.shape[:4], jnp.float32),
        ),
        (grid.queries(), grid.by_query()),
        interpret,
    )


def _triton_forward(k_block, order, count, ids, prefixes, q, k, v, out, logsumexp):
    c = q.shape[0]
    start = pl.program_id(0) * c
    own = pl.ds(start, c)
    queries, own_ids, own_prefixes = q[...], ids[own], prefixes[own]

    def visit(n, carry):
        top, total, mixed = carry
        at = order[n] * k_block
        keys = pl.ds(at, k_block)
        seen = _seen(own_ids, own_prefixes, ids[keys], start, at, queries_first=True)
        scores = jnp.where(seen, _dot(queries, k[keys, :], (1, 1)), _MASKED)
        new = jnp.maximum(top, jnp.max(scores, axis=1))
        weights, keep = jnp.exp(scores - new[:, None]), jnp.exp(top - new)
        part = _dot(weights.astype(v.dtype), v[keys, :], (1, 0))
        total = total * keep + jnp.sum(weights, axis=1)
        return new, total, mixed * keep[:, None] + part

    top, total, mixed = jax.lax.fori_loop(
        0,
        count[0],
        visit,
        (
            jnp.full(c, _MASKED, jnp.float32),
            jnp.zeros(c, jnp.float32),
            jnp.zeros(q.shape, jnp.float32),
        ),
    )
    out[...] = (mixed / total[:, None]).astype(out.dtype)
    logsumexp[...] = top + jnp.log(total)


def triton_d_queries(
    q, k, v, d_out, logsumexp, shift, rows: _Rows, blocks: Blocks, interpret: bool
):
    """See `Kernels.d_queries`."""
    grid = _ByQueryHead(rows.by_query_back, q, blocks.q_back)
    inputs = rows.ids, rows.prefixes, logsumexp, shift, q, k, v, d_out
    (d_q,) = _triton_call(
        functools.partial(_triton_d_queries, blocks.k_back),
        grid.shape,
        (grid.order, grid.count, *inputs),
        [
            *grid.pairs,
            grid.ids,
            grid.ids,
            grid.by_query(),
            grid.by_query(),
            grid.queries(),
            grid.keys(),
            grid.keys(),
            grid.queries(),
        ],
        [jax.ShapeDtypeStruct(q.shape, q.dtype)],
        [grid.queries()],
        interpret,
    )
    return d_q


def _triton_d_queries(
    k_block, order, count, ids, prefixes, logsumexp, shift, q, k, v, d_out, d_q
):
    c = q.shape[0]
    start = pl.program_id(0) * c
    own = pl.ds(start, c)
    queries, d_mixed, own_ids, own_prefixes = (
        q[...],
        d_out[...],
        ids[own],
        prefixes[own],
    )
    normal, moved = logsumexp[...][:, None], shift[...][:, None]

    def visit(n, total):
        at = order[n] * k_block
        keys = pl.ds(at, k_block)
        seen = _seen(own_ids, own_prefixes, ids[keys], start, at, queries_first=True)
        scores = jnp.where(seen, _dot(queries, k[keys, :], (1, 1)), _MASKED)
        d_weights = _dot(d_mixed, v[keys, :], (1, 1))
        d_scores = jnp.exp(scores - normal) * (d_weights - moved)
        return total + _dot(d_scores.astype(k.dtype), k[keys, :], (1, 0))

    total = jax.lax.fori_loop(0, count[0], visit, jnp.zeros(q.shape, jnp.float32))
    d_q[...] = total.astype(d_q.dtype)


def triton_d_keys(
    q, k, v, d_out, logsumexp, shift, rows: _Rows, blocks: Blocks, interpret: bool
):
    """See `Kernels.d_keys`."""
    order, count = rows.by_key_back
    batch, kv_heads, sharing, length, width = q.shape
    c = blocks.k_back

    def whole(*shape):
        """All queries of the program's kv head."""
        spec = (None, None, *shape)
        return pl.BlockSpec(spec, lambda j, b, head: (b, head, *[0] * len(shape)))

    ids = pl.BlockSpec((None, None, length), lambda j, b, head: (b, 0, 0))
    keys = pl.BlockSpec((None, None, c, width), lambda j, b, head: (b, head, j, 0))
    inputs = rows.ids, rows.prefixes, logsumexp, shift, q, k, v, d_out
    return _triton_call(
        functools.partial(_triton_d_keys, blocks.q_back),
        (length // c, batch, kv_heads),
        (order, count[..., None], *inputs),
        [
            pl.BlockSpec((None, None, order.shape[2]), lambda j, b, head: (b, j, 0)),
            pl.BlockSpec((None, None, 1), lambda j, b, head: (b, j, 0)),
            ids,
            ids,
            whole(sharing, length),
            whole(sharing, length),
            whole(sharing, length, width),
            keys,
            keys,
            whole(sharing, length, width),
        ],
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (k, v)],
        [keys, keys],
        interpret,
    )


def _triton_d_keys(
    q_block, order, count, ids, prefixes, logsumexp, shift, q, k, v, d_out, d_k, d_v
):
    sharing, c = q.shape[0], k.shape[0]
    start = pl.program_id(0) * c
    keys, values, own_ids = k[...], v[...], ids[pl.ds(start, c)]

    def visit(n, carry):
        k_sum, v_sum = carry
        head = jax.lax.rem(n, jnp.int32(sharing))
        at = order[jax.lax.div(n, jnp.int32(sharing))] * q_block
        queries = pl.ds(at, q_block)
        seen = _seen(
            ids[queries], prefixes[queries], own_ids, at, start, queries_first=False
        )
        of_head, d_mixed = q[head, queries, :], d_out[head, queries, :]
        scores = jnp.where(seen, _dot(keys, of_head, (1, 1)), _MASKED)
        weights = jnp.exp(scores - logsumexp[head, queries][None])
        d_weights = _dot(values, d_mixed, (1, 1))
        d_scores = weights * (d_weights - shift[head, queries][None])
        v_sum += _dot(weights.astype(v.dtype), d_mixed, (1, 0))
        return k_sum + _dot(d_scores.astype(q.dtype), of_head, (1, 0)), v_sum

    zero = jnp.zeros(k.shape, jnp.float32)
    k_sum, v_sum = jax.lax.fori_loop(0, count[0] * sharing, visit, (zero, zero))
    d_k[...] = k_sum.astype(d_k.dtype)
    d_v[...] = v_sum.astype(d_v.dtype)
