"""Converts between the decoder's parameters and tensors of Hugging Face files."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models import lora
from models.config import DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from models.lora import KERNELS, LAYERS, A, B
from models.safetensors_io import Specs
from sharding.rules import named_sharding, put_sharded

DTYPES = {
    name: jnp.dtype(name) for name in ("bfloat16", "float16", "float32", "float64")
}


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """Describes a weight, in a Hugging Face file and in the decoder's parameter tree.

    The tree stacks layers. A matrix of a layer is `[out, in]` in the file and
    `[in..., out...]` in the tree. Other weights differ at most by a reshape.
    """

    hf_name: str  # with `{}` in place of the layer index
    name: str  # in the parameter tree
    hf_axes: str  # axes in the file, one letter each; see `hf_shape`
    only: str = ""  # the models that have the weight; empty for all; see `rows`

    @property
    def layered(self) -> bool:
        return "{}" in self.hf_name

    @property
    def linear(self) -> bool:
        return self.layered and len(self.hf_axes) == 2

    def siblings(self, params: Any) -> Any:
        """Returns the dictionary in the parameter tree that contains the weight."""
        return params[LAYERS] if self.layered else params

    def hf_shape(self, config: DecoderConfig) -> tuple[int, ...]:
        sizes = {
            "V": config.vocab_size,
            "D": config.hidden_size,
            "F": config.intermediate_size,
            "Q": config.num_heads * config.head_dim,
            "K": config.num_kv_heads * config.head_dim,
            "H": config.head_dim,
            "R": config.lora.rank if config.lora else 0,
        }
        return tuple(sizes[axis] for axis in self.hf_axes)

    def from_hf(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Converts a file's array to `shape`, its shape in the tree for one layer."""
        return (array.T if self.linear else array).reshape(shape)

    def to_hf(self, array: np.ndarray, config: DecoderConfig) -> np.ndarray:
        """Converts an array of the tree, without a layer axis, to the file's shape."""
        shape = self.hf_shape(config)
        return array.reshape(shape[::-1]).T if self.linear else array.reshape(shape)


def _layer(hf_name: str, *rest: str) -> Weight:
    return Weight(f"model.layers.{{}}.{hf_name}", *rest)


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TABLE: tuple[Weight, ...] = (
    Weight(EMBEDDING, "embedding", "VD"),
    _layer("self_attn.q_proj.weight", "q", "QD"),
    _layer("self_attn.q_proj.bias", "q_bias", "Q", "qkv_bias"),
    _layer("self_attn.q_norm.weight", "q_norm", "H", "qk_norm"),
    _layer("self_attn.k_proj.weight", "k", "KD"),
    _layer("self_attn.k_proj.bias", "k_bias", "K", "qkv_bias"),
    _layer("self_attn.k_norm.weight", "k_norm", "H", "qk_norm"),
    _layer("self_attn.v_proj.weight", "v", "KD"),
    _layer("self_attn.v_proj.bias", "v_bias", "K", "qkv_bias"),
    _layer("self_attn.o_proj.weight", "o", "DQ"),
    _layer("mlp.gate_proj.weight", "gate", "FD"),
    _layer("mlp.up_proj.weight", "up", "FD"),
    _layer("mlp.down_proj.weight", "down", "DF"),
    _layer("input_layernorm.weight", "attention_norm", "D"),
    _layer("post_attention_layernorm.weight", "mlp_norm", "D"),
    Weight("model.norm.weight", "final_norm", "D"),
    Weight(HEAD, "head", "VD", "untied"),
)
# The adapters of the kernels, in the files of the package `peft`.
ADAPTERS: tuple[Weight, ...] = tuple(
    Weight(
        f"base_model.model.{kernel.hf_name.replace('weight', part)}.weight",
        kernel.name + suffix,
        axes,
        kernel.name,
    )
    for kernel in TABLE
    if kernel.name in KERNELS["all"]
    for part, suffix, axes in (
        ("lora_A", A, "R" + kernel.hf_axes[1]),
        ("lora_B", B, kernel.hf_axes[0] + "R"),
    )
)


def rows(
    config: DecoderConfig, table: Sequence[Weight] = TABLE
) -> Iterator[tuple[str, Weight, int | None]]:
    """Yields `(Hugging Face name, Weight, layer index or None)` for each tensor.

    The order is that of `table`, with the weights of each layer together. With
    `ADAPTERS`, only the adapters that the model has are included.
    """
    conditions = {
        "": True,
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "untied": not config.tie_word_embeddings,
        **dict.fromkeys(config.lora.kernels if config.lora else (), True),
    }
    there = [weight for weight in table if conditions.get(weight.only)]
    for layered, group in itertools.groupby(there, key=lambda weight: weight.layered):
        weights = list(group)
        for layer in range(config.num_layers) if layered else [None]:
            for weight in weights:
                yield weight.hf_name.format(layer), weight, layer


def tensor_specs(
    config: DecoderConfig, dtype: np.dtype, table: Sequence[Weight] = TABLE
) -> Specs:
    """Returns `(shape, dtype)` of every tensor by Hugging Face name."""
    return {
        name: (weight.hf_shape(config), np.dtype(dtype))
        for name, weight, _ in rows(config, table)
    }


def place_tensors(
    tensors: Mapping[str, np.ndarray],
    model: Decoder,
    mesh: Mesh,
    *,
    table: Sequence[Weight] = TABLE,
    on_loaded: Callable[[int], None] = lambda count: None,
) -> Params:
    """Converts tensors by Hugging Face name to parameters on the mesh.

    Raises ValueError if a parameter cannot be sharded.
    """
    shapes, _ = abstract_params(model)
    shardings = param_shardings(model, mesh)
    params: dict[str, Any] = {LAYERS: {}}
    for name, weight, layer in rows(model.config, table):
        shape = weight.siblings(shapes)[weight.name]
        sharding = weight.siblings(shardings)[weight.name]
        loaded = weight.siblings(params)
        if layer is None:
            whole = weight.from_hf(tensors[name], shape.shape)
            array = put_sharded(whole, sharding).astype(shape.dtype)
        else:
            one = NamedSharding(mesh, PartitionSpec(*sharding.spec[1:]))
            of_layer = weight.from_hf(tensors[name], shape.shape[1:])
            if layer == 0:
                zeros = functools.partial(jnp.zeros, shape.shape, shape.dtype)
                stack = jax.jit(zeros, out_shardings=sharding)()
            else:
                stack = loaded[weight.name]
            array = _insert(stack, put_sharded(of_layer, one), layer)
        loaded[weight.name] = array
        on_loaded(tensors[name].size)
    return params


@functools.partial(jax.jit, donate_argnums=0)
def _insert(stack: jax.Array, one: jax.Array, layer: int) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(
        stack, one.astype(stack.dtype), layer, axis=0
    )


def export_tensors(
    params: Params,
    config: DecoderConfig,
    dtype: np.dtype,
    table: Sequence[Weight] = TABLE,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields `(Hugging Face name, host array)` of each tensor in `table`.

    Adapters are merged into the weights of `TABLE`. The order is that of
    `rows`. `params` may be sharded. With several processes, all of them
    must exhaust the iterator, because each tensor is gathered collectively.
    """
    hf_names: tuple[str, ...] = ()
    arrays: tuple[jax.Array, ...] = ()
    for next_names, arguments in conversions(params, config, dtype, table):
        ahead = convert_group(*arguments)  # converted while the caller writes `arrays`
        yield from _to_host(hf_names, arrays)
        hf_names, arrays = next_names, ahead  # frees all layers but the next one
    yield from _to_host(hf_names, arrays)


def conversions(
    params: Params,
    config: DecoderConfig,
    dtype: np.dtype,
    table: Sequence[Weight] = TABLE,
) -> Iterator[tuple[tuple[str, ...], tuple[Any, ...]]]:
    """Yields Hugging Face names and arguments of `convert_group` for each group.

    The groups are the weights before the layers, each layer, and the weights after the
    layers. `params` may contain shapes instead of arrays.
    """
    sharding = None
    if jax.process_count() > 1:
        sharding = named_sharding(jax.tree.leaves(params)[0].sharding.mesh)
    for layer, group in itertools.groupby(rows(config, table), key=lambda row: row[2]):
        hf_names, weights, _ = zip(*group, strict=True)
        arrays = tuple(lora.parts(w.siblings(params), w.name) for w in weights)
        index = 0 if layer is None else layer
        yield hf_names, (weights, config, dtype, sharding, arrays, index)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def convert_group(weights, config, dtype, sharding, arrays, layer):
    """Converts a group of weights to Hugging Face tensors, with adapters merged."""
    found = []
    for weight, parts in zip(weights, arrays, strict=True):
        if weight.layered:
            parts = [x[layer] for x in parts]
        array = weight.to_hf(lora.merge(config.lora, *parts).astype(dtype), config)
        if sharding is not None:
            array = jax.lax.with_sharding_constraint(array, sharding)
        found.append(array)
    return tuple(found)


def _to_host(hf_names, arrays) -> Iterator[tuple[str, np.ndarray]]:
    for name, array in zip(hf_names, arrays, strict=True):
        local = array if array.is_fully_addressable else array.addressable_data(0)
        yield name, np.asarray(local)
