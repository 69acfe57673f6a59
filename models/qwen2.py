"""Qwen2.5 in Flax Linen: token ids to hidden states.

The head is applied by the objective and by the sampler (`head_table`), never here, so
that no `[tokens, vocabulary]` array exists unless somebody asks for it.

Axes: B rows, T positions, S cached positions, D model width, F MLP width, N query
heads, K kv heads, H head width, V vocabulary, L layers.

Source: Qwen2.5 technical report (arXiv 2412.15115), and the Qwen2 architecture in
Hugging Face transformers, to which the tests hold it equal.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from models import attention
from models.cache import Entries, KVCache
from models.config import Qwen2Config
from models.embedding import look_up
from sharding.rules import constrain, named_sharding

Params = Any

LAYERS = "layers"

REMAT_POLICIES = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


def _normal(axes):
    return nn.with_logical_partitioning(nn.initializers.normal(0.02), axes)


def _zeros(axes):
    return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


def _ones(axes):
    return nn.with_logical_partitioning(nn.initializers.ones_init(), axes)


def _rms_norm(x: jax.Array, weight: jax.Array, epsilon: float) -> jax.Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    variance = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    normed = wide * jax.lax.rsqrt(variance + epsilon)
    return weight.astype(x.dtype) * normed.astype(x.dtype)


def rotary_angles(positions: jax.Array, config: Qwen2Config) -> jax.Array:
    """`[B, T] -> [B, T, H/2]`, in float32: bfloat16 cannot hold position 4,095."""
    exponent = jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim
    return positions[..., None].astype(jnp.float32) / config.rope_theta**exponent


def _rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Rotary embedding (arXiv 2104.09864), halves paired as in transformers."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    first, second = jnp.split(wide, 2, axis=-1)
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


@jax.custom_vjp
def _swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    """`silu(gate) * up` (arXiv 2002.05202)."""
    return nn.silu(gate) * up


def _swiglu_forward(gate, up):
    return _swiglu(gate, up), (gate, up)


def _swiglu_backward(saved, d_out):
    gate, up = saved
    sigmoid = nn.sigmoid(gate)
    silu = gate * sigmoid
    d_gate = d_out * up * (sigmoid + silu * (1 - sigmoid))
    # Each goes into two matrix products. Without the barrier XLA on a CPU fuses this
    # into a transposed copy for one of them, at 20 times the cost.
    return jax.lax.optimization_barrier((d_gate, d_out * silu))


_swiglu.defvjp(_swiglu_forward, _swiglu_backward)


class Block(nn.Module):
    """One decoder layer: attention, then SwiGLU, each on a normed residual.

    Tokens are one axis outside of attention: XLA on a CPU does the gradient of
    `[B, T, D] @ [D, F]` at half the speed of `[B * T, D] @ [D, F]`.
    """

    config: Qwen2Config
    mesh: Mesh | None
    dtype: Any
    param_dtype: Any
    attention: str
    serves: bool = False

    @nn.compact
    def __call__(self, x, angles, segment_ids, prefix_ids, cached):
        """`x [B * T, D]` to x and, where it serves, the layer's entries.

        `cached` is None; or, where T is 1, the layer's `(k, v, visible, clock)` of a
        `KVCache`, which is then returned with the new entries in it. `visible` is bool
        `[B, S]`.
        """
        c = self.config

        def param(name, init, shape):
            return self.param(name, init, shape, self.param_dtype).astype(self.dtype)

        d, n, k_, h = c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim
        normed = _rms_norm(
            x, param("attention_norm", _ones(("norm",)), (d,)), c.rms_norm_eps
        )

        def project(name, heads, axis):
            kernel = param(name, _normal(("embed", axis, "head_dim")), (d, heads, h))
            bias = param(f"{name}_bias", _zeros((axis, "head_dim")), (heads, h))
            flat = normed @ kernel.reshape(d, heads * h) + bias.reshape(heads * h)
            return flat.reshape(*segment_ids.shape, heads, h)

        q = _rotate(project("q", n, "heads"), angles)
        k = _rotate(project("k", k_, "kv_heads"), angles)
        v = project("v", k_, "kv_heads")
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
            old_k, old_v, visible, clock = cached
            entries = (
                jax.lax.dynamic_update_slice_in_dim(
                    old_k, k.transpose(0, 2, 3, 1), clock, 3
                ),
                jax.lax.dynamic_update_slice_in_dim(
                    old_v, v.transpose(0, 2, 1, 3), clock, 2
                ),
            )
            mixed = attention.decode_attention(q[:, 0], *entries, visible)
        out = param("o", _normal(("heads", "head_dim", "embed")), (n, h, d))
        x = x + mixed.reshape(-1, n * h) @ out.reshape(n * h, d)
        x = constrain(x, ("batch", None), self.mesh)

        normed = _rms_norm(x, param("mlp_norm", _ones(("norm",)), (d,)), c.rms_norm_eps)
        f = c.intermediate_size
        gate = normed @ param("gate", _normal(("embed", "mlp")), (d, f))
        up = normed @ param("up", _normal(("embed", "mlp")), (d, f))
        down = param("down", _normal(("mlp", "embed")), (f, d))
        x = x + _swiglu(gate, up) @ down
        x = constrain(x, ("batch", None), self.mesh)
        return x, entries if self.serves else None


class Qwen2(nn.Module):
    """The decoder without its head, as it is trained: layers stacked, and scanned.

    Attributes:
      config: the architecture.
      mesh: pins activations to its axes; None leaves the layout to XLA.
      dtype: of activations and matrix products.
      param_dtype: of the parameters.
      remat: what the backward pass recomputes, a key of `REMAT_POLICIES`.
      unroll: layers per iteration of the scan; more compile longer and, on CPU, run
        faster.
      attention: a key of `models.attention.IMPLEMENTATIONS`.
    """

    config: Qwen2Config
    mesh: Mesh | None = None
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    remat: str = "none"
    unroll: int = 1
    attention: str = "xla"

    @nn.compact
    def __call__(
        self,
        token_ids: jax.Array,
        positions: jax.Array,
        segment_ids: jax.Array,
        *,
        prefix_ids: jax.Array | None = None,
    ) -> jax.Array:
        """Runs the decoder.

        Args:
          token_ids: int32 `[B, T]`.
          positions: int32 `[B, T]`, counted from 0 within each segment.
          segment_ids: int32 `[B, T]`; positions see only their own segment.
          prefix_ids: int32 `[B, T]`, an earlier segment of the row that a position
            sees whole besides its own, 0 for none; left out where no row shares any.

        Returns:
          Hidden states `[B, T, D]` after the final norm.
        """
        c = self.config
        if prefix_ids is None:
            prefix_ids = jnp.zeros_like(segment_ids)
        block = Block
        if REMAT_POLICIES[self.remat] is not None:
            block = nn.remat(
                Block, policy=REMAT_POLICIES[self.remat], prevent_cse=False
            )
        blocks = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(nn.broadcast,) * 4,
            length=c.num_layers,
            unroll=min(self.unroll, c.num_layers),
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(
            c,
            self.mesh,
            self.dtype,
            self.param_dtype,
            self.attention,
            name=LAYERS,
        )
        x = _embed(self, token_ids)
        x, _ = blocks(x, rotary_angles(positions, c), segment_ids, prefix_ids, None)
        if not c.tie_word_embeddings:
            self.param(
                "head",
                _normal(("vocab", "embed")),
                (c.vocab_size, c.hidden_size),
                self.param_dtype,
            )
        return _final_norm(self, x, token_ids)


class ServedQwen2(nn.Module):
    """The same decoder as it is sampled from: layers one by one, against a cache.

    Its parameters are those of `served_params`: a decode step that took its layers'
    parts out of stacked arrays, or cast them, would pay for that with every token.

    Attributes: as of `Qwen2`.
    """

    config: Qwen2Config
    mesh: Mesh | None = None
    dtype: Any = jnp.float32
    attention: str = "xla"

    @nn.compact
    def __call__(
        self,
        token_ids: jax.Array,
        positions: jax.Array,
        segment_ids: jax.Array,
        cache: KVCache | None = None,
    ) -> tuple[jax.Array, Entries, Entries]:
        """Runs the decoder.

        Args:
          token_ids, positions, segment_ids: as of `Qwen2`.
          cache: what each row's only position (T = 1) sees besides itself.

        Returns:
          Hidden states `[B, T, D]` after the final norm, and of each layer k and v:
          those of the cache with the new position written at its clock, or without a
          cache `[B, K, H, T]` and `[B, K, T, H]`.
        """
        c = self.config
        x = _embed(self, token_ids)
        angles = rotary_angles(positions, c)
        no_prefix = jnp.zeros_like(segment_ids)
        cached = [None] * c.num_layers
        if cache is not None:
            visible = (cache.age() + 1) % cache.size <= cache.length[:, None]
            cached = [
                (k, v, visible, cache.clock)
                for k, v in zip(cache.k, cache.v, strict=True)
            ]
        entries = []
        for layer, of_layer in enumerate(cached):
            x, entry = Block(
                c,
                self.mesh,
                self.dtype,
                self.dtype,
                self.attention,
                serves=True,
                name=f"{LAYERS}_{layer}",
            )(x, angles, segment_ids, no_prefix, of_layer)
            entries.append(entry)
        k, v = zip(*entries, strict=True)
        return _final_norm(self, x, token_ids), k, v

    @property
    def param_dtype(self):
        return self.dtype


def _embed(module: Qwen2 | ServedQwen2, token_ids: jax.Array) -> jax.Array:
    """`[B, T] -> [B * T, D]`."""
    c = module.config
    table = module.param(
        "embedding",
        _normal(("vocab", "embed")),
        (c.vocab_size, c.hidden_size),
        module.param_dtype,
    )
    x = look_up(table, token_ids.reshape(-1), module.mesh, module.dtype)
    return constrain(x, ("batch", None), module.mesh)


def _final_norm(module: Qwen2 | ServedQwen2, x, token_ids) -> jax.Array:
    """`[B * T, D] -> [B, T, D]`."""
    c = module.config
    weight = module.param(
        "final_norm", _ones(("norm",)), (c.hidden_size,), module.param_dtype
    )
    return _rms_norm(x, weight, c.rms_norm_eps).reshape(*token_ids.shape, c.hidden_size)


def served_params(params: Params, config: Qwen2Config, dtype) -> Params:
    """The parameters of `ServedQwen2`: in the compute dtype, a tree for each layer.

    Args:
      params: of `Qwen2`.
      config: the architecture.
      dtype: of activations and matrix products.
    """
    params = jax.tree.map(lambda x: x.astype(dtype), params)
    layers = params[LAYERS]
    return {name: x for name, x in params.items() if name != LAYERS} | {
        f"{LAYERS}_{i}": jax.tree.map(lambda x, i=i: x[i], layers)
        for i in range(config.num_layers)
    }


def head_table(params: Params) -> jax.Array:
    """The head as `[V, D]`: its own table, or the embedding where they are tied."""
    return params["head"] if "head" in params else params["embedding"]


def abstract_params(model: Qwen2) -> tuple[Params, Params]:
    """Shapes and logical axes of the parameters, without making any.

    Returns:
      A tree of `jax.ShapeDtypeStruct` and a tree of the same form with one tuple of
      logical axis names per array.
    """
    ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    init = model.clone(mesh=None).init  # one position divides over no mesh
    boxed = jax.eval_shape(init, jax.random.key(0), ids, ids, ids)["params"]
    axes = jax.tree.map(tuple, nn.get_partition_spec(boxed), is_leaf=_is_spec)
    return nn.unbox(boxed), axes


def _is_spec(x) -> bool:
    return isinstance(x, jax.sharding.PartitionSpec)


def param_shardings(model: Qwen2, mesh: Mesh) -> Params:
    """Where each parameter lives on `mesh`; strict (see `sharding.rules`)."""
    shapes, axes = abstract_params(model)
    return jax.tree_util.tree_map_with_path(
        lambda path, shape, names: named_sharding(
            names, mesh, shape=shape.shape, name=jax.tree_util.keystr(path)
        ),
        shapes,
        axes,
    )


def init_params(model: Qwen2, mesh: Mesh, seed: int) -> Params:
    """Random parameters, born sharded: no device ever holds more than its part."""
    ids = jnp.zeros((1, 1), jnp.int32)

    def init(key):
        return nn.unbox(model.clone(mesh=None).init(key, ids, ids, ids)["params"])

    return jax.jit(init, out_shardings=param_shardings(model, mesh))(
        jax.random.key(seed)
    )
