"""Computes attention over packed rows on TPUs with JAX's splash attention."""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash

_BLOCKS = (512, 256, 128)  # the largest that divides the padded row is used


def splash_attention(q, k, v, segment_ids, prefix_ids, interpret: bool) -> jax.Array:
    """Implements `models.attention.segment_attention` without shared prefixes."""
    del prefix_ids
    length, heads, width = q.shape[1:]
    pad = -length % _BLOCKS[-1]

    def heads_first(x):
        return jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, 0))).transpose(0, 2, 1, 3)

    ids = jnp.pad(segment_ids, ((0, 0), (0, pad)))
    run = jax.vmap(_kernel(heads, length + pad, interpret))
    scaled = heads_first(q * jnp.asarray(width**-0.5, q.dtype))
    mixed = run(scaled, heads_first(k), heads_first(v), splash.SegmentIds(ids, ids))
    return mixed.transpose(0, 2, 1, 3)[:, :length].astype(v.dtype)


def _kernel(heads: int, length: int, interpret: bool):
    block = next(block for block in _BLOCKS if length % block == 0)
    causal = splash.CausalMask((length, length))
    return splash.make_splash_mha(
        splash.MultiHeadMask([causal] * heads),
        block_sizes=splash.BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_q_dq=block,
            block_kv_dq=block,
        ),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
