"""Computes causal grouped-query attention over packed rows and over a cache.

Axes: B rows, T positions, S cached positions, P positions of the prefix that all rows
share, N query heads, K kv heads, H head width.
Scores and softmax are in float32; for float64 inputs, "xla" uses float64.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Float, Int

from models.attention_kernels import triton_attention
from models.block_attention import block_attention
from models.cache import Cached, Seen
from models.decode_kernel import decode_kernel
from models.online_softmax import merge
from models.splash import splash_attention
from sharding.mesh import platform
from sharding.rules import spec

_MASKED = -1e30  # finite, so that a fully masked row does not become NaN
_BLOCK = 128


def dense_attention(q, k, v, segment_ids, prefix_ids) -> jax.Array:
    """Implements `segment_attention` without blocks: masks the full score matrix."""
    batch, length, heads, width = q.shape
    grouped = q.reshape(batch, length, k.shape[2], heads // k.shape[2], width)
    accumulate = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum(
        "btkgh,bskh->bkgts", grouped, k, preferred_element_type=accumulate
    )
    scores = scores * width**-0.5
    prefix = prefix_ids[:, :, None] == segment_ids[:, None, :]
    prefix &= prefix_ids[:, :, None] != 0
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    causal = same & jnp.tri(length, dtype=bool)
    seen = causal[:, None, None] | prefix[:, None, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, _MASKED), axis=-1)
    mixed = jnp.einsum("bkgts,bskh->btkgh", weights.astype(v.dtype), v)
    return mixed.reshape(q.shape)


def _xla_attention(q, k, v, segment_ids, prefix_ids, interpret: bool) -> jax.Array:
    del interpret
    if q.shape[1] <= _BLOCK:  # faster for short rows
        return dense_attention(q, k, v, segment_ids, prefix_ids)
    return block_attention(q, k, v, segment_ids, prefix_ids, _BLOCK)


Implementation = Literal["xla", "triton", "splash"]
IMPLEMENTATIONS = {
    "xla": _xla_attention,
    "triton": triton_attention,
    "splash": splash_attention,
}
# The implementations in which a segment can attend to a shared prefix.
SHARES_PREFIXES = ("xla", "triton")


def default_implementation(mesh: Mesh | None, dtype: DTypeLike) -> Implementation:
    """Returns the default implementation for a mesh's platform and a compute dtype.

    The GPU kernels are for 16-bit floats. In float32 their blocks exceed the registers,
    and XLA is equally fast.
    """
    name = platform(mesh)
    if name == "gpu" and jnp.dtype(dtype).itemsize <= 2:
        return "triton"
    return "splash" if name == "tpu" else "xla"


@jax.named_scope("attention")
def segment_attention(
    q: Float[jax.Array, "B T N H"],
    k: Float[jax.Array, "B T K H"],
    v: Float[jax.Array, "B T K H"],
    segment_ids: Int[jax.Array, "B T"],
    prefix_ids: Int[jax.Array, "B T"],
    *,
    implementation: Implementation,
    mesh: Mesh | None,
) -> Float[jax.Array, "B T N H"]:
    """Computes causal attention within segments and to a shared prefix.

    Args:
      q, k: the rotated queries and keys.
      segment_ids: the segment of each position, ascending along a row; 0 for padding
        at the end of the row.
      prefix_ids: for each position, the id of an earlier segment of its row. The
        position also attends to this whole segment; 0 for none. Only implementations in
        `SHARES_PREFIXES` support values other than 0.
      mesh: the mesh that shards rows and heads; None for one device.
    """
    attend = functools.partial(
        IMPLEMENTATIONS[implementation], interpret=platform(mesh) == "cpu"
    )
    if mesh is None:
        return attend(q, k, v, segment_ids, prefix_ids)
    rows = spec("batch")
    heads, kv_heads = spec("batch", None, "heads"), spec("batch", None, "kv_heads")
    # Each device runs kernels, and loops of data-dependent length, on its own shard.
    return jax.shard_map(
        attend,
        mesh=mesh,
        in_specs=(heads, kv_heads, kv_heads, rows, rows),
        out_specs=heads,
        check_vma=False,
    )(q, k, v, segment_ids, prefix_ids)


@jax.named_scope("attention")
def decode_attention(
    q: jax.Array,
    cached: Cached,
    *,
    implementation: Implementation,
    block: int,
    mesh: Mesh | None,
) -> jax.Array:
    """Computes attention from the newest position of each row to the cached positions.

    `q` and the result are `[B, N, H]`. The cache already contains the newest position.
    The columns of the cache are read in blocks of `block`, a divisor of S, from the
    newest column backwards, until `cached.seen.reach` columns are covered. The shared
    prefix is read once for all rows.

    If `implementation` is "triton", the head width is a power of two, and there is no
    shared prefix, a Triton kernel is used. The kernel stops at each row's own oldest
    column, and requires that `block` is a power of two.
    """
    attend = functools.partial(_decode_attention, block=block)
    # The kernel requires a head width that is a power of two, as in Qwen2.5.
    power_of_two = not q.shape[-1] & (q.shape[-1] - 1)
    if implementation == "triton" and power_of_two and not cached.prefix:
        interpret = platform(mesh) == "cpu"
        attend = functools.partial(decode_kernel, block=block, interpret=interpret)
    if mesh is None:
        return attend(q, cached)
    lead = [None] * (cached.k.ndim - 4)
    of: Callable[..., Any] = spec  # untyped: specs take the place of arrays in a tree
    heads, entries = of("batch", "heads"), of(*lead, "batch", "kv_heads")
    rows, whole, of_prefix = of("batch"), of(), of(*lead, "kv_heads")
    split = Cached(
        k=entries,
        v=entries,
        prefix=(of_prefix,) * len(cached.prefix),
        layer=whole,
        seen=Seen(visible=rows, length=rows, newest=whole, reach=whole),
    )
    return jax.shard_map(
        attend, mesh=mesh, in_specs=(heads, split), out_specs=heads, check_vma=False
    )(q, cached)


def _decode_attention(q, cached, *, block):
    k, v, prefix, layer, seen = cached
    batch, heads, width = q.shape
    size = v.shape[-2]
    grouped = q.reshape(batch, k.shape[-3], heads // k.shape[-3], width)
    product = functools.partial(
        jnp.einsum, preferred_element_type=jnp.promote_types(q.dtype, jnp.float32)
    )

    def weighed(scores, equation, values):
        top = jnp.max(scores, axis=-1, keepdims=True)
        weights = jnp.exp(scores - top)
        mixed = product(equation, weights.astype(v.dtype), values)
        return top, jnp.sum(weights, axis=-1, keepdims=True), mixed

    def part(start):
        def columns(entries, axis):
            starts, sizes = [0] * entries.ndim, list(entries.shape)
            starts[axis], sizes[axis] = start, block
            if entries.ndim == 4:
                return jax.lax.dynamic_slice(entries, starts, sizes)
            starts[0], sizes[0] = layer, 1
            return jax.lax.dynamic_slice(entries, starts, sizes)[0]

        visible = jax.lax.dynamic_slice_in_dim(seen.visible, start, block, 1)
        scores = product("bkgh,bkhs->bkgs", grouped, columns(k, -1))
        scores = jnp.where(visible[:, None, None], scores * width**-0.5, _MASKED)
        return weighed(scores, "bkgs,bksh->bkgh", columns(v, -2))

    def of_prefix():
        prefix_k, prefix_v = (
            x if x.ndim == 3 else jax.lax.dynamic_index_in_dim(x, layer, keepdims=False)
            for x in prefix
        )
        scores = product("bkgh,khp->bkgp", grouped, prefix_k) * width**-0.5
        return weighed(scores, "bkgp,kph->bkgh", prefix_v)

    def visit(n, carry):
        number = (seen.newest // block - n) % (size // block)
        return merge(carry, part(number * block))

    if block == size:
        found = part(0)
    else:
        # Neither the newest nor the oldest column need be at the edge of its block.
        behind = seen.reach - 1 - seen.newest % block
        blocks = jnp.minimum(1 + -(-behind // block), size // block)
        newest = part(seen.newest // block * block)
        found = jax.lax.fori_loop(1, blocks, visit, newest)
    if prefix:
        found = merge(found, of_prefix())
    _, total, mixed = found
    # Dividing after the reduction over S saves a pass over the scores.
    return (mixed / total).astype(v.dtype).reshape(q.shape)
