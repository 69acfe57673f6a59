"""Computes attention over packed rows on GPUs with Pallas kernels for Triton.

The kernels are flash attention (arXiv 2205.14135, 2307.08691) with segments and shared
prefixes. A block of queries visits only the blocks of keys that it attends to. In the
backward pass a block of keys visits only the queries that attend to it. Each program
handles one block: it loops over the blocks that this block visits and keeps the
accumulators in registers. Keys are not repeated for query heads.

Axes: B rows, T positions, N query heads, K kv heads, G = N/K query heads of a kv head,
H head width; I blocks of queries, J blocks of keys.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from models.block_attention import visits

_MASKED = -1e30  # finite, so that a fully masked query does not become NaN
# Positions in a block of queries, of keys, and of either in the backward pass.
Q_BLOCK, K_BLOCK, BACK_BLOCK = 128, 64, 64
_WIDEST = 128  # head widths are padded to a power of two, or to a multiple of this


class _Rows(NamedTuple):
    """Holds segment ids and the pairs of blocks to visit; see `visits`.

    Attributes:
      ids: int32 `[B, 1, T]`, the segment of each position.
      prefixes: int32 `[B, 1, T]`, the shared prefix of each position, or 0.
      by_query: the key blocks of each query block in the forward pass, `[B, I, J]`, and
        their number `[B, I]`.
      by_query_back: as `by_query`, for the block sizes of the backward pass.
      by_key_back: the query blocks of each key block in the backward pass, `[B, J, I]`,
        and their number `[B, J]`.
    """

    ids: jax.Array
    prefixes: jax.Array
    by_query: tuple[jax.Array, jax.Array]
    by_query_back: tuple[jax.Array, jax.Array]
    by_key_back: tuple[jax.Array, jax.Array]


def _rows(segment_ids, prefix_ids) -> _Rows:
    by_query, _ = visits(segment_ids, prefix_ids, Q_BLOCK, K_BLOCK)
    back = visits(segment_ids, prefix_ids, BACK_BLOCK, BACK_BLOCK)
    return _Rows(segment_ids[:, None], prefix_ids[:, None], by_query, *back)


def triton_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: jax.Array,
    prefix_ids: jax.Array,
    interpret: bool,
) -> jax.Array:
    """Implements `models.attention.segment_attention` on a GPU."""
    length, width, sharing = q.shape[1], q.shape[3], q.shape[2] // k.shape[2]
    pad = -length % Q_BLOCK
    widen = -width % min(_WIDEST, 1 << (width - 1).bit_length())

    def heads_first(x):
        """Transposes `[B, T, heads, H] -> [B, heads, T, H]`, padded to whole blocks."""
        x = jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, widen)))
        return x.transpose(0, 2, 1, 3)

    ids, prefixes = (jnp.pad(x, ((0, 0), (0, pad))) for x in (segment_ids, prefix_ids))
    rows = _rows(ids, prefixes)
    scaled = heads_first(q * jnp.asarray(width**-0.5, q.dtype))
    grouped = scaled.reshape(len(q), -1, sharing, *scaled.shape[2:])
    mixed = _attend(grouped, heads_first(k), heads_first(v), rows, interpret)
    mixed = mixed.reshape(scaled.shape).transpose(0, 2, 1, 3)
    return mixed[:, :length, :, :width]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(q, k, v, rows: _Rows, interpret: bool) -> jax.Array:
    """Computes `(q [B, K, G, T, H], k and v [B, K, T, H]) -> [B, K, G, T, H]`."""
    return _forward(q, k, v, rows, interpret)[0]


def _attend_forward(q, k, v, rows, interpret):
    out, logsumexp = _forward(q, k, v, rows, interpret)
    return out, (q, k, v, rows, out, logsumexp)


def _attend_backward(interpret, saved, d_out):
    q, k, v, rows, out, logsumexp = saved
    shift = jnp.sum(out.astype(jnp.float32) * d_out.astype(jnp.float32), axis=-1)
    inputs = q, k, v, d_out.astype(q.dtype), logsumexp, shift, rows
    d_k, d_v = _d_keys(*inputs, interpret)
    return _d_queries(*inputs, interpret), d_k, d_v, None


_attend.defvjp(_attend_forward, _attend_backward)


def _seen(q_ids, q_prefixes, k_ids, q_start, k_start, queries_first: bool):
    """Returns the attention mask of a query block and a key block.

    Args:
      q_ids, q_prefixes: int32 `[Q]`, segment and prefix ids of the queries.
      k_ids: int32 `[C]`, segment ids of the keys.
      q_start, k_start: the position of the first query and of the first key.
      queries_first: whether the result is `[Q, C]`; otherwise `[C, Q]`.
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


def _call(kernel, grid, arrays, specs, outs, out_specs, interpret):
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
    """Defines a grid `[I, B, N]` with one program per block, row and query head."""

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


def _forward(q, k, v, rows: _Rows, interpret: bool):
    """Returns the output `[B, K, G, T, H]` and the log-sum-exp `[B, K, G, T]`."""
    grid = _ByQueryHead(rows.by_query, q, Q_BLOCK)
    return _call(
        functools.partial(_forward_kernel, K_BLOCK),
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


def _forward_kernel(k_block, order, count, ids, prefixes, q, k, v, out, logsumexp):
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


def _d_queries(q, k, v, d_out, logsumexp, shift, rows: _Rows, interpret: bool):
    """Returns the gradient with respect to the queries, `[B, K, G, T, H]`."""
    grid = _ByQueryHead(rows.by_query_back, q, BACK_BLOCK)
    inputs = rows.ids, rows.prefixes, logsumexp, shift, q, k, v, d_out
    (d_q,) = _call(
        functools.partial(_d_queries_kernel, BACK_BLOCK),
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


def _d_queries_kernel(
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


def _d_keys(q, k, v, d_out, logsumexp, shift, rows: _Rows, interpret: bool):
    """Returns the gradients with respect to keys and values, both `[B, K, T, H]`."""
    order, count = rows.by_key_back
    batch, kv_heads, sharing, length, width = q.shape
    c = BACK_BLOCK

    def whole(*shape):
        """Returns the spec of an array with all queries of the program's kv head."""
        spec = (None, None, *shape)
        return pl.BlockSpec(spec, lambda j, b, head: (b, head, *[0] * len(shape)))

    ids = pl.BlockSpec((None, None, length), lambda j, b, head: (b, 0, 0))
    keys = pl.BlockSpec((None, None, c, width), lambda j, b, head: (b, head, j, 0))
    inputs = rows.ids, rows.prefixes, logsumexp, shift, q, k, v, d_out
    return _call(
        functools.partial(_d_keys_kernel, BACK_BLOCK),
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


def _d_keys_kernel(
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
