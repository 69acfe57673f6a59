"""Computes attention over packed rows on GPUs with Pallas kernels for Triton.

The kernels are flash attention (arXiv 2205.14135, 2307.08691) with segments and shared
prefixes. In the kernels for outputs and query gradients, a program computes one block
of queries and loops over blocks of keys. In the kernel for the gradients of keys and
values, a program computes one block of keys and loops over blocks of queries. Blocks
that cannot contribute are skipped. Scores are scaled by log2(e), to use `exp2`.

Axes: B rows, T positions, N query heads, K kv heads, H head width; I blocks of queries,
J blocks of keys.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from models.block_attention import visible_pairs

_LOG2_E = math.log2(math.e)
# Added to masked scores. If a query sees no key of the first blocks that it visits, its
# scores minus their maximum are rounding errors. `exp2` of these must not overflow.
_MASKED = -(2.0**30)
_WIDEST = 128  # head widths are padded to a power of two, or to a multiple of this


class Tiling(NamedTuple):
    """Holds the tuning parameters of a kernel."""

    q_block: int  # positions in a block of queries, a power of two
    k_block: int  # positions in a block of keys, a power of two
    warps: int  # of a program
    stages: int  # loop iterations whose loads are in flight


class Tilings(NamedTuple):
    queries: Tiling  # of the kernels for outputs and query gradients
    keys: Tiling  # of the kernel for the gradients of keys and values


# For head widths up to 128 bytes, and above.
NARROW = Tilings(Tiling(128, 64, 8, 3), Tiling(64, 64, 4, 3))
WIDE = Tilings(Tiling(128, 64, 8, 3), Tiling(64, 128, 8, 2))


class Options(NamedTuple):
    tilings: Tilings
    scale: float  # factor of scores, from the head width before padding
    interpret: bool  # for tests on a CPU


class _Pairs(NamedTuple):
    """Lists the key blocks that each query block visits.

    `_Rows.of_keys` instead lists the query blocks that each key block visits.
    """

    # int32 [B, I, J], all key blocks: first those to visit without a mask, then those
    # with a mask, then the others.
    order: jax.Array
    counts: jax.Array  # int32 [B, I, 2], blocks to visit: without a mask, and in all


class _Rows(NamedTuple):
    ids: jax.Array  # int32 [B, T], the segment of each position
    prefixes: jax.Array  # int32 [B, T], the prefix id; 0 for none
    of_queries: _Pairs
    of_keys: _Pairs  # the query blocks of each key block, [B, J, I] and [B, J, 2]


def _rows(segment_ids, prefix_ids, tilings: Tilings) -> _Rows:
    def pairs(tiling, by_key=False):
        both = visible_pairs(segment_ids, prefix_ids, tiling.q_block, tiling.k_block)
        visible, full = (x.swapaxes(1, 2) if by_key else x for x in both)
        order = jnp.argsort(2 - visible - full, axis=-1, stable=True)
        counts = jnp.stack([full.sum(axis=-1), visible.sum(axis=-1)], axis=-1)
        return _Pairs(order.astype(jnp.int32), counts.astype(jnp.int32))

    of_queries, of_keys = pairs(tilings.queries), pairs(tilings.keys, by_key=True)
    return _Rows(segment_ids, prefix_ids, of_queries, of_keys)


def triton_attention(q, k, v, segment_ids, prefix_ids, interpret: bool) -> jax.Array:
    """Implements `models.attention.segment_attention` on a GPU."""
    length, width = q.shape[1], q.shape[3]
    tilings = NARROW if width * q.dtype.itemsize <= 128 else WIDE
    pad = -length % max(max(x.q_block, x.k_block) for x in tilings)
    widen = -width % min(_WIDEST, 1 << (width - 1).bit_length())

    def heads_first(x):
        x = jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, widen)))
        return x.transpose(0, 2, 1, 3)

    ids, prefixes = (jnp.pad(x, ((0, 0), (0, pad))) for x in (segment_ids, prefix_ids))
    rows = _rows(ids, prefixes, tilings)
    options = Options(tilings, width**-0.5, interpret)
    mixed = _attend(*map(heads_first, (q, k, v)), rows, options)
    return mixed.transpose(0, 2, 1, 3)[:, :length, :, :width]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(q, k, v, rows: _Rows, options: Options) -> jax.Array:
    """Attends from `q [B, N, T, H]` to k and v `[B, K, T, H]`."""
    return _forward(q, k, v, rows, options)[0]


def _forward(q, k, v, rows: _Rows, options: Options):
    """Returns the output `[B, N, T, H]`, and what the backward pass needs."""
    outputs = q, jax.ShapeDtypeStruct(q.shape[:3], jnp.float32)  # logsumexp: base 2
    out, logsumexp = _call(_forward_kernel, rows, options, (q, k, v), outputs)
    return out, (q, k, v, rows, out, logsumexp)


def _backward(options, saved, d_out):
    q, k, v, rows, out, logsumexp = saved
    shift = jnp.sum(out.astype(jnp.float32) * d_out.astype(jnp.float32), axis=-1)
    arrays = q, k, v, d_out.astype(q.dtype), logsumexp, shift
    (d_q,) = _call(_d_queries_kernel, rows, options, arrays, [q])
    # Each program computes the part of one query head. Fewer and longer programs would
    # leave processors idle at the end.
    parts = _call(_d_keys_kernel, rows, options, arrays, [q, q], by_key=True)
    grouped = (x.reshape(*k.shape[:2], -1, *k.shape[2:]) for x in parts)
    d_k, d_v = (jnp.sum(x, axis=2, dtype=jnp.float32).astype(q.dtype) for x in grouped)
    return d_q, d_k, d_v, None


_attend.defvjp(_forward, _backward)


def _mask(q_ids, q_prefixes, k_ids, q_start, k_start, queries_first: bool):
    """Returns the mask of a query block and a key block, to be added to their scores.

    The mask is 0 where a query attends to a key, and large and negative elsewhere. Its
    shape is `[queries, keys]` if `queries_first`; otherwise `[keys, queries]`. Triton
    adds the mask within the matrix product. `jnp.where` on the scores would need up to
    60 more registers.
    """
    shape = (len(q_ids), len(k_ids)) if queries_first else (len(k_ids), len(q_ids))
    q_axis, k_axis = (0, 1) if queries_first else (1, 0)
    ids, prefixes = (jnp.expand_dims(x, k_axis) for x in (q_ids, q_prefixes))
    keys = jnp.expand_dims(k_ids, q_axis)
    q_at = q_start + jax.lax.broadcasted_iota(jnp.int32, shape, q_axis)
    k_at = k_start + jax.lax.broadcasted_iota(jnp.int32, shape, k_axis)
    seen = ((ids == keys) | (prefixes == keys)) & (q_at >= k_at)
    return jnp.where(seen, 0.0, _MASKED)


def _dot(a, b, contract: tuple[int, int]):
    """Contracts axis `contract[0]` of a with axis `contract[1]` of b, in float32."""
    return jax.lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        preferred_element_type=jnp.float32,
    )


def _exp2(x, scale: float, shift, interpret: bool):
    """Computes `2 ** (x * scale - shift)`.

    Triton's `exp2` spends three more instructions on results below 2**-126, and does
    not fuse the multiplication and the subtraction.
    """
    if interpret:
        return jnp.exp2(x * scale - shift)
    factor = np.float32(scale).view(np.uint32)
    (result,) = triton.elementwise_inline_asm(
        f"""{{
        .reg .f32 x;
        fma.rn.f32 x, $1, 0f{factor:08X}, $2;
        ex2.approx.ftz.f32 $0, x;
        }}""",
        args=[x, jnp.broadcast_to(-shift, x.shape)],
        constraints="=f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(x.shape, jnp.float32)],
    )
    return result


def _visit(order, counts, of_block, size: int, visit, carry):
    """Repeats `carry = visit(masked, start, carry)` for the blocks to visit.

    `order` and `counts` are those of `_Pairs`, and `of_block` indexes their first two
    axes. `start` is the first position of a visited block of `size` positions.
    """

    def visit_block(masked, n, carry):
        return visit(masked, order[*of_block, n] * size, carry)

    full, every = counts[*of_block, 0], counts[*of_block, 1]
    carry = jax.lax.fori_loop(0, full, functools.partial(visit_block, False), carry)
    return jax.lax.fori_loop(full, every, functools.partial(visit_block, True), carry)


def _call(kernel, rows: _Rows, options: Options, arrays, outputs, by_key=False):
    """Runs a program of `kernel` for each query head, row, and block of queries.

    With `by_key`, for each block of keys instead. `arrays` are the inputs, first q.
    `outputs` have the shapes and dtypes of results.
    """
    tiling = options.tilings.keys if by_key else options.tilings.queries
    pairs = rows.of_keys if by_key else rows.of_queries
    batch, heads = arrays[0].shape[:2]
    return pl.pallas_call(
        functools.partial(kernel, tiling, options),
        grid=(heads, batch, pairs.order.shape[1]),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
        compiler_params=triton.CompilerParams(
            num_warps=tiling.warps, num_stages=tiling.stages
        ),
        interpret=options.interpret,
    )(*pairs, rows.ids, rows.prefixes, *arrays)


def _place(q, k):
    """Returns the row and query head of a program, and its row and kv head."""
    head, row = pl.program_id(0), pl.program_id(1)
    return (row, head), (row, head // (q.shape[1] // k.shape[1]))


def _forward_kernel(
    tiling, options, order, counts, ids, prefixes, q, k, v, out, logsumexp
):
    (row, head), kv_head = _place(q, k)
    # Programs that visit many blocks start first: those of the last blocks.
    block = order.shape[1] - 1 - pl.program_id(2)
    start = block * tiling.q_block
    own = pl.ds(start, tiling.q_block)
    queries, scale = q[row, head, own], options.scale * _LOG2_E
    own_ids, own_prefixes = ids[row, own], prefixes[row, own]

    def visit(masked, at, carry):
        top, total, mixed = carry
        keys = pl.ds(at, tiling.k_block)
        scores = _dot(queries, k[*kv_head, keys], (1, 1))
        if masked:
            scores += _mask(own_ids, own_prefixes, ids[row, keys], start, at, True)
        new = jnp.maximum(top, jnp.max(scores, axis=1) * scale)
        weights = _exp2(scores, scale, new[:, None], options.interpret)
        keep = jnp.exp2(top - new)
        part = _dot(weights.astype(v.dtype), v[*kv_head, keys], (1, 0))
        total = total * keep + jnp.sum(weights, axis=1)
        return new, total, mixed * keep[:, None] + part

    carry = (
        jnp.full(tiling.q_block, _MASKED, jnp.float32),
        jnp.zeros(tiling.q_block, jnp.float32),
        jnp.zeros(queries.shape, jnp.float32),
    )
    of_block = row, block
    top, total, mixed = _visit(order, counts, of_block, tiling.k_block, visit, carry)
    out[row, head, own] = (mixed / total[:, None]).astype(out.dtype)
    logsumexp[row, head, own] = top + jnp.log(total) * _LOG2_E


def _d_queries_kernel(tiling, options, order, counts, ids, prefixes, *refs):
    q, k, v, d_out, logsumexp, shift, d_q = refs
    (row, head), kv_head = _place(q, k)
    block = order.shape[1] - 1 - pl.program_id(2)  # as in the forward kernel
    start = block * tiling.q_block
    own = pl.ds(start, tiling.q_block)
    queries, d_mixed = q[row, head, own], d_out[row, head, own]
    own_ids, own_prefixes = ids[row, own], prefixes[row, own]
    normal, moved = logsumexp[row, head, own], shift[row, head, own]
    scale = options.scale * _LOG2_E

    def visit(masked, at, total):
        keys = pl.ds(at, tiling.k_block)
        scores = _dot(queries, k[*kv_head, keys], (1, 1))
        if masked:
            scores += _mask(own_ids, own_prefixes, ids[row, keys], start, at, True)
        weights = _exp2(scores, scale, normal[:, None], options.interpret)
        d_weights = _dot(d_mixed, v[*kv_head, keys], (1, 1))
        d_scores = weights * (d_weights - moved[:, None])
        return total + _dot(d_scores.astype(k.dtype), k[*kv_head, keys], (1, 0))

    zero = jnp.zeros(queries.shape, jnp.float32)
    total = _visit(order, counts, (row, block), tiling.k_block, visit, zero)
    d_q[row, head, own] = (total * options.scale).astype(d_q.dtype)


def _d_keys_kernel(tiling, options, order, counts, ids, prefixes, *refs):
    q, k, v, d_out, logsumexp, shift, d_k, d_v = refs
    (row, head), kv_head = _place(q, k)
    block = pl.program_id(2)  # programs of the first blocks visit the most
    start = block * tiling.k_block
    own = pl.ds(start, tiling.k_block)
    keys, values, own_ids = k[*kv_head, own], v[*kv_head, own], ids[row, own]
    scale = options.scale * _LOG2_E

    def visit(masked, at, carry):
        k_sum, v_sum = carry
        seeing = pl.ds(at, tiling.q_block)
        queries, d_mixed = q[row, head, seeing], d_out[row, head, seeing]
        scores = _dot(keys, queries, (1, 1))
        if masked:
            of_queries = ids[row, seeing], prefixes[row, seeing]
            scores += _mask(*of_queries, own_ids, at, start, False)
        normal, moved = logsumexp[row, head, seeing], shift[row, head, seeing]
        weights = _exp2(scores, scale, normal[None], options.interpret)
        d_weights = _dot(values, d_mixed, (1, 1))
        d_scores = weights * (d_weights - moved[None])
        v_sum += _dot(weights.astype(v.dtype), d_mixed, (1, 0))
        return k_sum + _dot(d_scores.astype(q.dtype), queries, (1, 0)), v_sum

    zero = jnp.zeros(keys.shape, jnp.float32)
    of_block = row, block
    k_sum, v_sum = _visit(order, counts, of_block, tiling.q_block, visit, (zero, zero))
    d_k[row, head, own] = (k_sum * options.scale).astype(d_k.dtype)
    d_v[row, head, own] = v_sum.astype(d_v.dtype)
