"""Flash attention by the kernels that come with JAX: Pallas on GPUs, splash on TPUs.

Both know segments and neither knows prefixes: rows must hold whole segments.

Axes: B rows, T positions, N query heads, K kv heads, H head width.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu import attention as gpu
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as masks,
)

_BLOCK = 128


def pallas_attention(q, k, v, segment_ids, prefix_ids) -> jax.Array:
    """See `models.attention.segment_attention`."""
    del prefix_ids
    length, sharing = q.shape[1], q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, sharing, axis=2) for x in (k, v))
    half = _BLOCK // 2
    mixed = gpu.mha(
        *_whole_blocks(q, k, v, segment_ids),
        sm_scale=q.shape[-1] ** -0.5,
        causal=True,
        block_sizes=gpu.BlockSizes(
            block_q=_BLOCK,
            block_k=_BLOCK,
            block_q_dkv=half,
            block_kv_dkv=half,
            block_q_dq=half,
            block_kv_dq=half,
        ),
        interpret=_interpret(),
    )
    return mixed[:, :length]


def splash_attention(q, k, v, segment_ids, prefix_ids) -> jax.Array:
    """See `models.attention.segment_attention`."""
    del prefix_ids
    length = q.shape[1]
    scaled = q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
    q, k, v, ids = _whole_blocks(scaled, k, v, segment_ids)
    causal = masks.CausalMask((q.shape[1], q.shape[1]))
    kernel = splash.make_splash_mha(
        mask=masks.MultiHeadMask([causal] * q.shape[2]),
        head_shards=1,
        q_seq_shards=1,
        interpret=_interpret(),
    )
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    mixed = jax.vmap(kernel)(q, k, v, splash.SegmentIds(ids, ids))
    return mixed.transpose(0, 2, 1, 3)[:, :length]


def _whole_blocks(*arrays: jax.Array) -> list[jax.Array]:
    """Pads `[B, T, ...]` to a multiple of the kernels' block, as further padding."""
    pad = -arrays[0].shape[1] % _BLOCK
    return [jnp.pad(x, ((0, 0), (0, pad), *[(0, 0)] * (x.ndim - 2))) for x in arrays]


@functools.cache
def _interpret() -> bool:
    """On a CPU the kernels' own interpreters stand in for the hardware."""
    return jax.default_backend() == "cpu"
