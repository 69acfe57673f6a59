"""Computes attention of one new position over a cache in a Pallas kernel for Triton.

XLA copies slices of a cache before it uses them. Here each program reads the columns of
one row and kv head in place, from the newest back to the row's oldest.

Axes: B rows, K kv heads, G query heads of one kv head, H head width, S columns of the
cache, C columns of a block.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from models.cache import Cached

_MASKED = -1e30
_LEAST_ROWS = 16  # minimum number of rows of a matrix product


def decode_kernel(q, cached: Cached, *, block: int, interpret: bool) -> jax.Array:
    """Implements `models.attention.decode_attention` without a shared prefix.

    The head width and C = `block` must be powers of two.
    """
    k, v = cached.k, cached.v
    if k.ndim == 5:
        pick = functools.partial(jax.lax.dynamic_index_in_dim, keepdims=False)
        k, v = pick(k, cached.layer), pick(v, cached.layer)
    rows, heads, _, width = v.shape
    grouped = q.reshape(rows, heads, -1, width)
    mixed = pl.pallas_call(
        functools.partial(_kernel, block=block),
        grid=(rows, heads),
        out_shape=jax.ShapeDtypeStruct(grouped.shape, v.dtype),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
        name="decode_attention",
    )(grouped, k, v, cached.seen.length, cached.seen.newest[None])
    return mixed.reshape(q.shape)


def _kernel(q_ref, k_ref, v_ref, length_ref, newest_ref, out_ref, *, block):
    row, kv_head = pl.program_id(0), pl.program_id(1)
    sharing, width = q_ref.shape[2:]
    size = v_ref.shape[2]
    # Pad the query heads with zeros to the minimum size of a matrix product.
    padded = -(-sharing // _LEAST_ROWS) * _LEAST_ROWS
    head = jax.lax.broadcasted_iota(jnp.int32, (padded, width), 0)
    heads = row, kv_head, pl.ds(0, padded), slice(None)
    q = triton.load(q_ref.at[heads], mask=head < sharing, other=0.0)
    seen, newest = length_ref[row] + 1, newest_ref[0]

    def visit(n, carry):
        top, total, mixed = carry
        start = (newest // block + size // block - n) % (size // block) * block
        columns = start + jnp.arange(block)
        keys = k_ref[row, kv_head, :, pl.ds(start, block)]
        scores = triton.dot(q, keys).astype(jnp.float32)
        visible = (newest + size - columns) % size < seen
        scores = jnp.where(visible[None], scores * width**-0.5, _MASKED)
        new_top = jnp.maximum(top, jnp.max(scores, axis=1))
        weights = jnp.exp(scores - new_top[:, None])
        keep = jnp.exp(top - new_top)
        values = v_ref[row, kv_head, pl.ds(start, block), :]
        part = triton.dot(weights.astype(v_ref.dtype), values)
        total = total * keep + jnp.sum(weights, axis=1)
        return new_top, total, mixed * keep[:, None] + part.astype(jnp.float32)

    # Neither the newest nor the oldest column need be at the edge of its block.
    behind = jnp.maximum(seen - 1 - newest % block, 0)
    blocks = jnp.minimum(1 + (behind + block - 1) // block, size // block)
    start = (
        jnp.full(padded, _MASKED, jnp.float32),
        jnp.zeros(padded, jnp.float32),
        jnp.zeros((padded, width), jnp.float32),
    )
    _, total, mixed = jax.lax.fori_loop(0, blocks, visit, start)
    out = (mixed / total[:, None]).astype(out_ref.dtype)
    triton.store(out_ref.at[heads], out, mask=head < sharing)
