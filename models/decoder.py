"""Defines the decoder of Qwen2.5, Qwen3 and Llama in Flax Linen.

The decoder maps token ids to hidden states. The objective and the sampler apply the
output head (`head_table`), so the decoder makes no `[tokens, vocabulary]` array.

Axes: B rows, T positions, S cached positions, D model width, F MLP width, N query
heads, K kv heads, H head width, V vocabulary, L layers.

Source: technical reports of Qwen2.5 (arXiv 2412.15115) and Qwen3 (arXiv 2505.09388).
"""

import functools
import math
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
from jaxtyping import Float, Float32, Int

from models import attention, lora
from models.attention import Implementation
from models.cache import Cached, Entries
from models.config import DecoderConfig
from models.embedding import look_up
from models.lora import LAYERS
from sharding.mesh import platform
from sharding.rules import checked_sharding, constrain

Params = Any
# Cosines and sines.
Rotation = tuple[Float32[jax.Array, "B T half_H"], Float32[jax.Array, "B T half_H"]]

Remat = Literal["none", "full", "dots"]
REMAT_POLICIES = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


def _partitioned(init):
    return lambda *axes: nn.with_logical_partitioning(init, axes)


_normal = _partitioned(nn.initializers.normal(0.02))
_zeros = _partitioned(nn.initializers.zeros_init())
_ones = _partitioned(nn.initializers.ones_init())


def rms_norm(x: jax.Array, weight: jax.Array, epsilon: float) -> jax.Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    variance = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    normed = wide * jax.lax.rsqrt(variance + epsilon)
    return weight.astype(x.dtype) * normed.astype(x.dtype)


def rotary(positions: Int[jax.Array, "B T"], config: DecoderConfig) -> Rotation:
    """Returns the cosines and the sines `[B, T, H / 2]` of the rotary embedding."""
    # In float32, because bfloat16 cannot represent position 4,095.
    exponent = jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim
    per_radian = config.rope_theta**exponent
    if (scaling := config.rope_scaling) is not None:
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        waves = scaling.original_max_positions / (2 * math.pi * per_radian)
        kept = jnp.clip((waves - low) / (high - low), 0, 1)
        per_radian /= kept + (1 - kept) / scaling.factor
    angles = positions[..., None].astype(jnp.float32) / per_radian
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(x: jax.Array, rotation: Rotation) -> jax.Array:
    """Rotates pairs `x[i], x[i + H / 2]` (arXiv 2104.09864)."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    first, second = jnp.split(wide, 2, axis=-1)
    cos, sin = (of_angle[:, :, None] for of_angle in rotation)
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


@jax.custom_vjp
def _swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    """Computes `silu(gate) * up` (arXiv 2002.05202)."""
    return nn.silu(gate) * up


def _swiglu_forward(gate, up):
    return _swiglu(gate, up), (gate, up)


def _swiglu_backward(saved, d_out):
    gate, up = saved
    sigmoid = nn.sigmoid(gate)
    silu = gate * sigmoid
    d_gate = d_out * up * (sigmoid + silu * (1 - sigmoid))
    # Both gradients feed two matrix products. Without the barrier, XLA on CPU fuses
    # them into a transposed copy for one product, which takes 20 times as long.
    return jax.lax.optimization_barrier((d_gate, d_out * silu))


_swiglu.defvjp(_swiglu_forward, _swiglu_backward)


class Block(nn.Module):
    """Represents one decoder layer: attention, then SwiGLU, each with a pre-norm.

    Outside attention, B and T are merged into one axis. On CPU, XLA computes the
    gradient of `[B, T, D] @ [D, F]` at half the speed of `[B * T, D] @ [D, F]`.
    """

    config: DecoderConfig
    mesh: Mesh | None
    dtype: Any
    param_dtype: Any
    attention: Implementation
    serves: bool = False
    cache_block: int = 0

    @nn.compact
    def __call__(
        self,
        x: Float[jax.Array, "tokens D"],
        rotation: Rotation,
        segment_ids: Int[jax.Array, "B T"],
        prefix_ids: Int[jax.Array, "B T"],
        cached: Cached | None,
    ) -> tuple[jax.Array, Entries | Cached | None]:
        """Returns the residual stream of the B * T tokens, and their keys and values.

        The second result is None unless `serves` is set. Without `cached`, it is a pair
        k `[B, K, H, T]`, v `[B, K, T, H]`. To decode, T is 1 and `cached` has the keys
        and values of earlier positions; the result is `cached` with the new position.
        """
        c = self.config

        def param(name, init, shape):
            return self.param(name, init, shape, self.param_dtype).astype(self.dtype)

        def norm(name, x):
            weight = param(name, _ones("norm"), x.shape[-1:])
            return rms_norm(x, weight, c.rms_norm_eps)

        def kernel(name, axes, shape):
            weight = self.param(name, _normal(*axes), shape, self.param_dtype)
            pair = lora.adapters(self, c.lora, name, axes, shape, self.param_dtype)
            return lora.merge(c.lora, weight, *pair).astype(self.dtype)

        d, n, k_, h = c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim
        normed = norm("attention_norm", x)

        def project(name, heads, axis):
            weight = kernel(name, ("embed", axis, "head_dim"), (d, heads, h))
            flat = normed @ weight.reshape(d, heads * h)
            if c.qkv_bias:
                bias = param(f"{name}_bias", _zeros(axis, "head_dim"), (heads, h))
                flat += bias.reshape(heads * h)
            return flat.reshape(*segment_ids.shape, heads, h)

        def turned(name, heads, axis):
            x = project(name, heads, axis)
            if c.qk_norm:
                x = norm(f"{name}_norm", x)
            return _rotate(x, rotation)

        q = turned("q", n, "heads")
        k = turned("k", k_, "kv_heads")
        v = project("v", k_, "kv_heads")
        entries: Entries | Cached
        if cached is None:
            mixed = attention.segment_attention(
                q,
                k,
                v,
                segment_ids,
                prefix_ids,
                implementation=self.attention,
                mesh=self.mesh,
            )
            entries = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
        else:
            entries = cached = cached.written(k, v)
            mixed = attention.decode_attention(
                q[:, 0],
                cached,
                implementation=self.attention,
                block=self.cache_block or cached.k.shape[-1],
                mesh=self.mesh,
            )
        out = kernel("o", ("heads", "head_dim", "embed"), (n, h, d))
        x = x + mixed.reshape(-1, n * h) @ out.reshape(n * h, d)
        x = constrain(x, ("batch", None), self.mesh)

        normed = norm("mlp_norm", x)
        f = c.intermediate_size
        if self.has_variable("params", "gate_up"):  # see `InferenceDecoder.joins`
            both: Any = self.get_variable("params", "gate_up")
            product = jnp.einsum("td,dnf->tnf", normed, both.astype(self.dtype))
            gate, up = product[:, 0], product[:, 1]
        else:
            gate = normed @ kernel("gate", ("embed", "mlp"), (d, f))
            up = normed @ kernel("up", ("embed", "mlp"), (d, f))
        down = kernel("down", ("mlp", "embed"), (f, d))
        x = x + _swiglu(gate, up) @ down
        x = constrain(x, ("batch", None), self.mesh)
        return x, entries if self.serves else None


class Decoder(nn.Module):
    """Represents the decoder for training, which returns hidden states, not logits."""

    config: DecoderConfig
    mesh: Mesh | None = None  # shards activations; None leaves this to XLA
    dtype: Any = jnp.float32  # dtype of activations and matrix products
    param_dtype: Any = jnp.float32
    remat: Remat = "none"
    attention: Implementation = "xla"
    deterministic: bool = False  # sum the embedding's gradient in a fixed order

    @nn.compact
    def __call__(
        self,
        token_ids: Int[jax.Array, "B T"],
        positions: Int[jax.Array, "B T"],
        segment_ids: Int[jax.Array, "B T"],
        *,
        prefix_ids: Int[jax.Array, "B T"] | None = None,
    ) -> Float[jax.Array, "B T D"]:
        """Computes the hidden states of packed rows, after the final norm.

        Args:
          positions: the index of each token in its segment; with a prefix, counted from
            the start of the prefix.
          segment_ids: the segment of each token. Attention is causal within segments.
          prefix_ids: for each token, the id of an earlier segment of its row. The token
            also attends to this whole segment; 0 for none. None means 0 everywhere.
        """
        c = self.config
        if prefix_ids is None:
            prefix_ids = jnp.zeros_like(segment_ids)

        def param(name, init, *shape):
            return self.param(name, init, shape, self.param_dtype)

        block, policy = Block, REMAT_POLICIES[self.remat]
        if policy is not None:
            block = nn.remat(Block, policy=policy, prevent_cse=False)
        blocks = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(nn.broadcast,) * 4,
            length=c.num_layers,
            # Models of a few layers run faster on CPU without a loop.
            unroll=c.num_layers <= 4 and platform(self.mesh) == "cpu",
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(c, self.mesh, self.dtype, self.param_dtype, self.attention, name=LAYERS)
        words, width = c.vocab_size, c.hidden_size
        table = param("embedding", _normal("vocab", "embed"), words, width)
        ids = token_ids.reshape(-1)
        x = look_up(table, ids, self.mesh, self.dtype, ordered=self.deterministic)
        x = constrain(x, ("batch", None), self.mesh)
        x, _ = blocks(x, rotary(positions, c), segment_ids, prefix_ids, None)
        if not c.tie_word_embeddings:
            param("head", _normal("vocab", "embed"), words, width)
        x = rms_norm(x, param("final_norm", _ones("norm"), width), c.rms_norm_eps)
        return x.reshape(*token_ids.shape, width)


def head_table(params: Params) -> jax.Array:
    """Returns the output head `[V, D]`, which is the embedding if they are tied."""
    return params["head"] if "head" in params else params["embedding"]


def _init(model: Decoder, key: jax.Array) -> Params:
    ids = jnp.zeros((1, 1), jnp.int32)
    # Without a mesh: a batch of one token cannot be sharded.
    return model.clone(mesh=None).init(key, ids, ids, ids)["params"]


def abstract_params(model: Decoder) -> tuple[Params, Params]:
    """Returns the shapes and the logical axes of the parameters, without allocation.

    For each array, the first tree has a `jax.ShapeDtypeStruct`, and the second one a
    `PartitionSpec` of logical axis names.
    """
    boxed = jax.eval_shape(functools.partial(_init, model), jax.random.key(0))
    return nn.unbox(boxed), nn.get_partition_spec(boxed)


def param_shardings(model: Decoder, mesh: Mesh | AbstractMesh) -> Params:
    """Returns each parameter's sharding; raises ValueError if one cannot be sharded."""
    shapes, axes = abstract_params(model)
    return jax.tree_util.tree_map_with_path(
        lambda path, shape, names: checked_sharding(
            tuple(names), mesh, shape=shape.shape, name=jax.tree_util.keystr(path)
        ),
        shapes,
        axes,
    )


def init_params(model: Decoder, mesh: Mesh, seed: int) -> Params:
    shardings = param_shardings(model, mesh)
    init = jax.jit(lambda key: nn.unbox(_init(model, key)), out_shardings=shardings)
    return init(jax.random.key(seed))
