"""Computes attention over packed rows on GPUs with Pallas kernels for Triton.

The kernels are flash attention (arXiv 2205.14135, 2307.08691) with segments and shared
prefixes. In the kernels for outputs and query gradients, a program computes one block
of queries and loops over blocks of keys. In the kernel for the gradients of keys and
values, a program computes one block of keys and loops over blocks of queries. Blocks
that cannot contribute are skipped. Scores are scaled by log2(e), to use `exp2`.

Axes: B rows, T positions, N query heads, K kv heads, G = N/K query heads of a kv head,
H head width; I blocks of queries, J blocks of keys.
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
    forward: Tiling
    d_queries: Tiling
    d_keys: Tiling


# For head widths up to 128 bytes, up to 256 bytes, and above.
NARROW = Tilings(Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 3), Tiling(64, 64, 4, 3))
WIDE = Tilings(Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 3), Tiling(64, 128, 8, 2))
# Larger blocks or more stages exceed the shared memory of an A100.
WIDER = Tilings(Tiling(128, 64, 8, 2), Tiling(64, 64, 8, 2), Tiling(64, 64, 8, 2))


class Options(NamedTuple):
    tilings: Tilings
    scale: float  # factor of scores, from the head width before padding
    interpret: bool  # for tests on a CPU


class _Pairs(NamedTuple):
    """Lists the key blocks that each query block visits.

    `_Rows.d_keys` instead lists the query blocks that each key block visits.
    """

    # int32 [B, I, J], all key blocks: first those to visit without a mask, then those
    # with a mask, then the others.
    order: jax.Array
    counts: jax.Array  # int32 [B, I, 2], blocks to visit: without a mask, and in all


class _Rows(NamedTuple):
    ids: jax.Array  # int32 [B, 1, T], the segment of each position
    prefixes: jax.Array  # int32 [B, 1, T], the prefix id; 0 for none
    forward: _Pairs
    d_queries: _Pairs
    d_keys: _Pairs  # the query blocks of each key block, [B, J, I] and [B, J, 2]


def _rows(segment_ids, prefix_ids, tilings: Tilings) -> _Rows:
    def pairs(tiling, by_key=False):
        both = visible_pairs(segment_ids, prefix_ids, tiling.q_block, tiling.k_block)
        visible, full = (x.swapaxes(1, 2) if by_key else x for x in both)
        order = jnp.argsort(2 - visible - full, axis=-1, stable=True)
        counts = jnp.stack([full.sum(axis=-1), visible.sum(axis=-1)], axis=-1)
        return _Pairs(order.astype(jnp.int32), counts.astype(jnp.int32))

    return _Rows(
        segment_ids[:, None],
        prefix_ids[:, None],
        pairs(tilings.forward),
        pairs(tilings.d_queries),
        pairs(tilings.d_keys, by_key=True),
    )


def triton_attention(q, k, v, segment_ids, prefix_ids, interpret: bool) -> jax.Array:
    """Implements `models.attention.segment_attention` on a GPU."""
    length, width, sharing = q.shape[1], q.shape[3], q.shape[2] // k.shape[2]
    size = width * q.dtype.itemsize
    tilings = NARROW if size <= 128 else WIDE if size <= 256 else WIDER
    pad = -length % max(max(x.q_block, x.k_block) for x in tilings)
    widen = -width % min(_WIDEST, 1 << (width - 1).bit_length())

    def heads_first(x):
        x = jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, widen)))
        return x.transpose(0, 2, 1, 3)

    ids, prefixes = (jnp.pad(x, ((0, 0), (0, pad))) for x in (segment_ids, prefix_ids))
    rows = _rows(ids, prefixes, tilings)
    queries = heads_first(q)
    grouped = queries.reshape(len(q), -1, sharing, *queries.shape[2:])
    options = Options(tilings, width**-0.5, interpret)
    mixed = _attend(grouped, heads_first(k), heads_first(v), rows, options)
    mixed = mixed.reshape(queries.shape).transpose(0, 2, 1, 3)
    return mixed[:, :length, :, :width]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(q, k, v, rows: _Rows, options: Options) -> jax.Array:
    """Attends from `q [B, K, G, T, H]` to k and v `[B, K, T, H]`."""
    return _forward(q, k, v, rows, options)[0]


def _attend_forward(q, k, v, rows, options):
    out, logsumexp = _forward(q, k, v, rows, options)
    return out, (q, k, v, rows, out, logsumexp)


def _attend_backward(options, saved, d_out):
    q, k, v, rows, out, logsumexp = saved
    shift = jnp.sum(out.astype(jnp.float32) * d_out.astype(jnp.float32), axis=-1)
    arrays = logsumexp, shift, q, k, v, d_out.astype(q.dtype)

    def call(kernel, tiling, pairs, of_keys, wanted):
        grid, width = _Grid(q, tiling, options, of_keys), q.shape[-1]
        scalars = grid.queries(whole=of_keys)
        queries = grid.queries(width, whole=of_keys)
        keys = grid.keys(whole=not of_keys)
        specs = scalars, scalars, queries, keys, keys, queries
        outputs = [
            (jax.ShapeDtypeStruct(q.shape, x.dtype), grid.queries(width))
            for x in wanted
        ]
        inputs = zip(arrays, specs, strict=True)
        return _call(kernel, grid, rows, pairs, inputs, outputs)

    tilings = options.tilings
    (d_q,) = call(_d_queries_kernel, tilings.d_queries, rows.d_queries, False, [q])
    # Each program computes the part of one query head. Fewer and longer programs would
    # leave processors idle at the end.
    parts = call(_d_keys_kernel, tilings.d_keys, rows.d_keys, True, [k, v])
    d_k, d_v = (jnp.sum(x, axis=2, dtype=jnp.float32).astype(x.dtype) for x in parts)
    return d_q, d_k, d_v, None


_attend.defvjp(_attend_forward, _attend_backward)


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


def _visit(counts, visit, carry):
    """Repeats `carry = visit(masked, n, carry)` for all n from 0 to `counts[1] - 1`.

    `masked` is False for n < `counts[0]`; see `_Pairs`.
    """
    full, every = counts[0], counts[1]
    carry = jax.lax.fori_loop(0, full, functools.partial(visit, False), carry)
    return jax.lax.fori_loop(full, every, functools.partial(visit, True), carry)


class _Grid:
    """Defines a grid `[N, B, I or J]`: a program for each query head, row and block.

    Programs that visit many blocks start first: those of the last blocks of queries, or
    of the first blocks of keys. `pairs`, `ids`, `queries` and `keys` return block
    specs, which select the part of an array that a program uses.
    """

    def __init__(self, q, tiling: Tiling, options: Options, of_keys: bool):
        self.tiling, self.options = tiling, options
        batch, kv_heads, self._sharing, self._length, self._width = q.shape
        self._block = tiling.k_block if of_keys else tiling.q_block
        self._blocks = self._length // self._block
        self._last_first = not of_keys
        self.shape = kv_heads * self._sharing, batch, self._blocks

    def block(self, n):
        return self._blocks - 1 - n if self._last_first else n

    def _head(self, head, b):
        return b, head // self._sharing, head % self._sharing

    def pairs(self, size: int):
        """Selects the program's block in `[B, I, size]` or `[B, J, size]`."""
        return pl.BlockSpec((None, None, size), lambda h, b, n: (b, self.block(n), 0))

    def ids(self):
        return pl.BlockSpec((None, None, self._length), lambda h, b, n: (b, 0, 0))

    def queries(self, *width: int, whole: bool = False):
        """Selects a head of `[B, K, G, T, *width]`, and a block of T unless `whole`."""
        return pl.BlockSpec(
            (None, None, None, self._length if whole else self._block, *width),
            lambda h, b, n: (
                *self._head(h, b),
                0 if whole else self.block(n),
                *[0] * len(width),
            ),
        )

    def keys(self, whole: bool = False):
        """Selects a head of `[B, K, T, H]`, and a block of T unless `whole`."""
        return pl.BlockSpec(
            (None, None, self._length if whole else self._block, self._width),
            lambda h, b, n: (*self._head(h, b)[:2], 0 if whole else self.block(n), 0),
        )


def _call(kernel, grid: _Grid, rows: _Rows, pairs: _Pairs, inputs, outputs):
    """Calls a kernel; `inputs` contains (array, spec), and `outputs` (shape, spec)."""
    arrays, specs = zip(*inputs, strict=True)
    out_shape, out_specs = zip(*outputs, strict=True)
    of_pairs = [grid.pairs(x.shape[2]) for x in pairs]
    return pl.pallas_call(
        functools.partial(kernel, grid),
        grid=grid.shape,
        in_specs=[*of_pairs, grid.ids(), grid.ids(), *specs],
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=triton.CompilerParams(
            num_warps=grid.tiling.warps, num_stages=grid.tiling.stages
        ),
        interpret=grid.options.interpret,
    )(*pairs, rows.ids, rows.prefixes, *arrays)


def _forward(q, k, v, rows: _Rows, options: Options):
    """Returns the output `[B, K, G, T, H]` and base-2 log-sum-exp `[B, K, G, T]`."""
    width = q.shape[-1]
    grid = _Grid(q, options.tilings.forward, options, of_keys=False)
    keys = grid.keys(whole=True)
    inputs = [(q, grid.queries(width)), (k, keys), (v, keys)]
    outputs = [
        (jax.ShapeDtypeStruct(q.shape, v.dtype), grid.queries(width)),
        (jax.ShapeDtypeStruct(q.shape[:4], jnp.float32), grid.queries()),
    ]
    return _call(_forward_kernel, grid, rows, rows.forward, inputs, outputs)


def _forward_kernel(grid, order, counts, ids, prefixes, q, k, v, out, logsumexp):
    tiling, options = grid.tiling, grid.options
    start = grid.block(pl.program_id(2)) * tiling.q_block
    own = pl.ds(start, tiling.q_block)
    queries, own_ids, own_prefixes = q[...], ids[own], prefixes[own]
    scale = options.scale * _LOG2_E

    def visit(masked, n, carry):
        top, total, mixed = carry
        at = order[n] * tiling.k_block
        keys = pl.ds(at, tiling.k_block)
        scores = _dot(queries, k[keys, :], (1, 1))
        if masked:
            scores += _mask(own_ids, own_prefixes, ids[keys], start, at, True)
        new = jnp.maximum(top, jnp.max(scores, axis=1) * scale)
        weights = _exp2(scores, scale, new[:, None], options.interpret)
        keep = jnp.exp2(top - new)
        part = _dot(weights.astype(v.dtype), v[keys, :], (1, 0))
        total = total * keep + jnp.sum(weights, axis=1)
        return new, total, mixed * keep[:, None] + part

    carry = (
        jnp.full(tiling.q_block, _MASKED, jnp.float32),
        jnp.zeros(tiling.q_block, jnp.float32),
        jnp.zeros(q.shape, jnp.float32),
    )
    top, total, mixed = _visit(counts, visit, carry)
    out[...] = (mixed / total[:, None]).astype(out.dtype)
    logsumexp[...] = top + jnp.log(total) * _LOG2_E


def _d_queries_kernel(grid, order, counts, ids, prefixes, *refs):
    tiling, options = grid.tiling, grid.options
    logsumexp, shift, q, k, v, d_out, d_q = refs
    start = grid.block(pl.program_id(2)) * tiling.q_block
    own = pl.ds(start, tiling.q_block)
    queries, d_mixed = q[...], d_out[...]
    own_ids, own_prefixes = ids[own], prefixes[own]
    normal, moved = logsumexp[...][:, None], shift[...][:, None]

    def visit(masked, n, total):
        at = order[n] * tiling.k_block
        keys = pl.ds(at, tiling.k_block)
        scores = _dot(queries, k[keys, :], (1, 1))
        if masked:
            scores += _mask(own_ids, own_prefixes, ids[keys], start, at, True)
        weights = _exp2(scores, options.scale * _LOG2_E, normal, options.interpret)
        d_weights = _dot(d_mixed, v[keys, :], (1, 1))
        d_scores = weights * (d_weights - moved)
        return total + _dot(d_scores.astype(k.dtype), k[keys, :], (1, 0))

    total = _visit(counts, visit, jnp.zeros(q.shape, jnp.float32))
    d_q[...] = (total * options.scale).astype(d_q.dtype)


def _d_keys_kernel(grid, order, counts, ids, prefixes, *refs):
    tiling, options = grid.tiling, grid.options
    logsumexp, shift, q, k, v, d_out, d_k, d_v = refs
    start = grid.block(pl.program_id(2)) * tiling.k_block
    keys, values, own_ids = k[...], v[...], ids[pl.ds(start, tiling.k_block)]

    def visit(masked, n, carry):
        k_sum, v_sum = carry
        at = order[n] * tiling.q_block
        own = pl.ds(at, tiling.q_block)
        queries, d_mixed = q[own, :], d_out[own, :]
        scores = _dot(keys, queries, (1, 1))
        if masked:
            scores += _mask(ids[own], prefixes[own], own_ids, at, start, False)
        normal, moved = logsumexp[own][None], shift[own][None]
        weights = _exp2(scores, options.scale * _LOG2_E, normal, options.interpret)
        d_weights = _dot(values, d_mixed, (1, 1))
        d_scores = weights * (d_weights - moved)
        v_sum += _dot(weights.astype(v.dtype), d_mixed, (1, 0))
        return k_sum + _dot(d_scores.astype(q.dtype), queries, (1, 0)), v_sum

    zero = jnp.zeros(k.shape, jnp.float32)
    k_sum, v_sum = _visit(counts, visit, (zero, zero))
    d_k[...] = (k_sum * options.scale).astype(d_k.dtype)
    d_v[...] = v_sum.astype(d_v.dtype)
