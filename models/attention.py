"""Causal grouped-query attention, by segment and against a cache.

Axes: B rows, T positions, S cached positions, N query heads, K kv heads, H head width.
Scores and softmax are in float32 (float64 where the inputs are).
"""

import jax
import jax.numpy as jnp

_MASKED = -1e30  # finite: a row of nothing but this stays free of NaN


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


def segment_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """Each position attends to itself and to earlier ones of its own segment.

    Args:
      q: `[B, T, N, H]`, rotated.
      k: `[B, T, K, H]`, rotated.
      v: `[B, T, K, H]`.
      segment_ids: int `[B, T]`; equal ids within a row are contiguous.

    Returns:
      `[B, T, N, H]` in the dtype of `v`.
    """
    scores = _scores(_group_heads(q, k.shape[2]), k)
    scores = jnp.where(_causal(segment_ids), scores, _MASKED)
    return _mix(jax.nn.softmax(scores, axis=-1), v).reshape(q.shape)


def cached_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: jax.Array,
    cached_k: jax.Array,
    cached_v: jax.Array,
    cached_length: jax.Array,
) -> jax.Array:
    """As `segment_attention`, where every position also sees the row's cache.

    The cache is read, never copied: the new entries are scored beside it.

    Args:
      q, k, v, segment_ids: as in `segment_attention`, for the T new positions.
      cached_k: `[B, S, K, H]`.
      cached_v: `[B, S, K, H]`.
      cached_length: int `[B]`, leading entries of the row's cache that are valid.
    """
    grouped = _group_heads(q, k.shape[2])
    size = cached_k.shape[1]
    valid = (jnp.arange(size) < cached_length[:, None])[:, None, None, None]
    old = jnp.where(valid, _scores(grouped, cached_k), _MASKED)
    new = jnp.where(_causal(segment_ids), _scores(grouped, k), _MASKED)
    weights = jax.nn.softmax(jnp.concatenate([old, new], axis=-1), axis=-1)
    mixed = _mix(weights[..., :size], cached_v) + _mix(weights[..., size:], v)
    return mixed.reshape(q.shape)
