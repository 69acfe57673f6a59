"""Causal grouped-query attention, by segment and against a cache.

Axes: B rows, T positions, S cached positions, N query heads, K kv heads, H head width.
Scores and softmax are in float32 (float64 where the inputs are).
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from models.attention_kernels import pallas_attention, splash_attention
from models.block_attention import block_attention

_MASKED = -1e30  # finite: a row of nothing but this stays free of NaN
_BLOCK = 128


def _group_heads(q: jax.Array, num_kv_heads: int) -> jax.Array:
    batch, length, heads, width = q.shape
    return q.reshape(batch, length, num_kv_heads, heads // num_kv_heads, width)


def _scores(q: jax.Array, k: jax.Array) -> jax.Array:
    """`[B, T, K, N/K, H] x [B, S, K, H] -> [B, K, N/K, T, S]`, scaled."""
    accumulate = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum("btkgh,bskh->bkgts", q, k, preferred_element_type=accumulate)
    return scores * q.shape[-1] ** -0.5


def _mix(weights: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.einsum("bkgts,bskh->btkgh", weights.astype(v.dtype), v)


def _causal(segment_ids: jax.Array) -> jax.Array:
    """`[B, T] -> [B, 1, 1, T, T]`: same segment, not later."""
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    length = segment_ids.shape[1]
    return (same & jnp.tri(length, dtype=bool))[:, None, None]


def dense_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: jax.Array,
    prefix_ids: jax.Array,
) -> jax.Array:
    """All positions against all, masked: the least work where rows are short."""
    scores = _scores(_group_heads(q, k.shape[2]), k)
    prefix = prefix_ids[:, :, None] == segment_ids[:, None, :]
    prefix &= prefix_ids[:, :, None] != 0
    seen = _causal(segment_ids) | prefix[:, None, None]
    scores = jnp.where(seen, scores, _MASKED)
    return _mix(jax.nn.softmax(scores, axis=-1), v).reshape(q.shape)


def xla_attention(q, k, v, segment_ids, prefix_ids) -> jax.Array:
    """Runs everywhere; see `dense_attention` and `models.block_attention`."""
    if q.shape[1] <= _BLOCK:
        return dense_attention(q, k, v, segment_ids, prefix_ids)
    return block_attention(q, k, v, segment_ids, prefix_ids, _BLOCK)


IMPLEMENTATIONS = {
    "xla": xla_attention,
    "pallas": pallas_attention,
    "splash": splash_attention,
}
SHARES_PREFIXES = ("xla",)


def default_implementation() -> str:
    """By platform: Pallas' flash attention on GPUs, splash attention on TPUs."""
    platform = jax.default_backend()
    return {"gpu": "pallas", "tpu": "splash"}.get(platform, "xla")


def segment_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: jax.Array,
    prefix_ids: jax.Array,
    *,
    implementation: str,
    mesh: Mesh | None,
) -> jax.Array:
    """Each position attends to its own segment up to itself, and to its prefix.

    Args:
      q: `[B, T, N, H]`, rotated.
      k: `[B, T, K, H]`, rotated.
      v: `[B, T, K, H]`.
      segment_ids: int32 `[B, T]`, ascending along a row, 0 for padding at its end.
      prefix_ids: int32 `[B, T]`, an earlier segment of the row that the position sees
        whole; 0 for none. Read by `SHARES_PREFIXES` alone.
      implementation: a key of `IMPLEMENTATIONS`.
      mesh: rows are split over its data and fsdp axes, heads over tensor.

    Returns:
      `[B, T, N, H]` in the dtype of `v`.
    """
    attend = IMPLEMENTATIONS[implementation]
    if mesh is None:
        return attend(q, k, v, segment_ids, prefix_ids)
    rows = P(("data", "fsdp"))
    heads = P(("data", "fsdp"), None, "tensor")
    # Loops whose length is data, and kernels, are for each device to run on its own.
    return jax.shard_map(
        attend,
        mesh=mesh,
        in_specs=(heads, heads, heads, rows, rows),
        out_specs=heads,
        check_vma=False,
    )(q, k, v, segment_ids, prefix_ids)


def decode_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array
) -> jax.Array:
    """One new position of each row against a cache that holds it too.

    Args:
      q: `[B, N, H]`, rotated.
      k: `[B, K, H, S]`, rotated: with S last, a CPU takes half the time.
      v: `[B, K, S, H]`.
      visible: bool `[B, S]`, the columns that the row's new position sees.

    Returns:
      `[B, N, H]` in the dtype of `v`.
    """
    batch, heads, width = q.shape
    grouped = q.reshape(batch, k.shape[1], heads // k.shape[1], width)
    accumulate = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum(
        "bkgh,bkhs->bkgs", grouped, k, preferred_element_type=accumulate
    )
    scores = jnp.where(visible[:, None, None], scores * width**-0.5, _MASKED)
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    # Divided by their sum when S is gone: a pass less over the scores.
    mixed = jnp.einsum(
        "bkgs,bksh->bkgh",
        weights.astype(v.dtype),
        v,
        preferred_element_type=accumulate,
    )
    mixed /= jnp.sum(weights, axis=-1)[..., None]
    return mixed.astype(v.dtype).reshape(q.shape)
