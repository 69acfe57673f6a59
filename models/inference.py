"""Runs the decoder for inference, with tensor-parallel weights and a key-value cache.

A copy of the weights is split over `tensor` devices by MLP width, vocabulary and whole
heads. If `tensor` does not divide the number of kv heads, each kv head is replicated.
If the query heads of a kv head do not divide evenly over its replicas, query heads with
zero weights are added.

Axes: B rows, T positions, L layers stacked in one array, D model width, N query heads,
K kv heads, H head width, V vocabulary.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models import lora
from models.attention import Implementation
from models.cache import Cached, Entries, KVCache
from models.config import DecoderConfig
from models.decoder import (
    LAYERS,
    Block,
    Decoder,
    Params,
    abstract_params,
    param_shardings,
    rms_norm,
    rotary,
)
from models.embedding import look_up
from sharding.mesh import between_mesh
from sharding.rules import constrain


def served_config(config: DecoderConfig, tensor: int) -> DecoderConfig:
    """Returns the config without adapters, with head counts divisible by `tensor`."""
    kv_heads = math.lcm(config.num_kv_heads, tensor)
    sharing = config.num_heads // config.num_kv_heads
    return dataclasses.replace(
        config,
        num_heads=kv_heads * math.ceil(sharing * config.num_kv_heads / kv_heads),
        num_kv_heads=kv_heads,
        lora=None,
    )


@dataclasses.dataclass(frozen=True)
class InferenceDecoder:
    """Represents the decoder for prefill and cached decoding.

    A loop over the `stacked` layers of an array keeps compilation short. On CPU and GPU
    a loop copies each layer's weights out of the array; `stacked=1` has no loop.
    """

    config: DecoderConfig  # from `served_config`
    mesh: Mesh  # from `sharding.mesh.served_mesh`
    dtype: Any = jnp.float32  # of parameters, activations and the cache
    attention: Implementation = "xla"
    stacked: int = 1  # L, layers in one array; divides the number of layers
    cache_block: int = 0  # cache columns read at a time; 0 reads all at once
    # Whether a layer's gate and up kernels are one array "gate_up" [D, 2, F]. Otherwise
    # XLA on GPU joins the kernels for every token, to merge their products.
    joins: bool = False

    def __call__(
        self,
        params: Params,
        token_ids: jax.Array,
        positions: jax.Array,
        segment_ids: jax.Array,
        cache: KVCache | None = None,
        longest: jax.Array | None = None,
        prefix_ids: jax.Array | None = None,
    ) -> tuple[jax.Array, Entries, Entries]:
        """Returns hidden states `[B, T, D]`, the arrays of keys, and those of values.

        The hidden states are those after the final norm. To decode, T is 1 and `cache`
        is required. The arrays are those of the cache, with the new position written at
        `cache.clock`. Prefill has no cache, and the arrays are keys
        `[L, B, K, H, T]` and values `[L, B, K, T, H]`. The axis L is absent if L is 1.

        Args:
          params: the parameters, as returned by `served_params`.
          token_ids, positions, segment_ids: as in `Decoder`.
          longest: int32, an upper bound on the length of the rows whose results are
            used; required with a cache.
          prefix_ids: as in `Decoder`, for prefill only.
        """
        c = self.config
        block = Block(
            c,
            self.mesh,
            self.dtype,
            self.dtype,
            self.attention,
            serves=True,
            cache_block=self.cache_block,
        )
        x = look_up(params["embedding"], token_ids.reshape(-1), self.mesh, self.dtype)
        x = constrain(x, ("batch", None), self.mesh)
        rotation = rotary(positions, c)
        if prefix_ids is None:
            prefix_ids = jnp.zeros_like(segment_ids)

        # Pass the cache in the carry: a scan that is traced once would keep the arrays
        # that `layer` closed over in its first call.
        def layer(carry, of_layer):
            x, cached = carry
            weights, number = of_layer
            if cached:
                cached = cached._replace(layer=number)
            x, entries = block.apply(
                {"params": weights}, x, rotation, segment_ids, prefix_ids, cached
            )
            return ((x, entries), None) if cached else ((x, None), entries)

        caches: Sequence[Cached | None] = [None] * len(params[LAYERS])
        if cache is not None:
            assert longest is not None
            caches = cache.layers(longest)
        entries, numbers = [], jnp.arange(self.stacked, dtype=jnp.int32)
        for weights, cached in zip(params[LAYERS], caches, strict=True):
            (x, cached), made = jax.lax.scan(
                layer, (x, cached), (weights, numbers), unroll=self.stacked == 1
            )
            if made and self.stacked == 1:
                made = jax.tree.map(lambda x: x[0], made)
            entries.append((cached.k, cached.v) if cached else made)
        k, v = zip(*entries, strict=True)
        x = rms_norm(x, params["final_norm"], c.rms_norm_eps)
        return x.reshape(*token_ids.shape, c.hidden_size), k, v


def abstract_served(served: InferenceDecoder) -> tuple[Params, Params]:
    """Returns the shapes and the shardings of the result of `served_params`."""
    model = Decoder(served.config, param_dtype=served.dtype)
    count = served.config.num_layers // served.stacked

    def first_array(layers):
        first = jax.tree.map(lambda x: x[: served.stacked], layers)
        return _joined(first, served, lambda *pair: jnp.stack(pair, 2))

    shapes, _ = abstract_params(model)
    of_layers = jax.eval_shape(first_array, shapes[LAYERS])
    shapes = shapes | {LAYERS: (of_layers,) * count}
    shardings = param_shardings(model, served.mesh)
    of_layers = _joined(shardings[LAYERS], served, _joined_sharding)
    return shapes, shardings | {LAYERS: (of_layers,) * count}


def served_params(params: Params, trained: Decoder, served: InferenceDecoder) -> Params:
    """Converts parameters from the training layout to the inference layout and dtype.

    The devices of both layouts are the same, in the same order. Adapters are merged,
    and weights are cast before their transfer. Each jitted call converts only one array
    of layers, or one parameter outside the layers. This limits peak memory, because all
    transfers of a call may start together.
    """
    made = {}
    for name, table in params.items():
        if name != LAYERS:
            made[name] = table_program(name, trained, served)(table)
            jax.block_until_ready(made[name])
    of_layers, arrays = layers_program(trained, served), []
    for first in range(0, served.config.num_layers, served.stacked):
        arrays.append(of_layers(params[LAYERS], np.int32(first)))
        jax.block_until_ready(arrays[-1])
    return made | {LAYERS: tuple(arrays)}


@functools.cache
def table_program(
    name: str, trained: Decoder, served: InferenceDecoder
) -> Callable[[jax.Array], jax.Array]:
    """Returns a jitted function that converts parameter `name` outside the layers."""
    way = [tree[name] for tree in _way(trained, served)]

    @functools.partial(jax.jit, out_shardings=way[-1])
    def served_table(table):
        return _travel(table.astype(served.dtype), way)

    return served_table


@functools.cache
def layers_program(
    trained: Decoder, served: InferenceDecoder
) -> Callable[[Params, np.int32], Params]:
    """Returns a jitted function that converts `served.stacked` consecutive layers.

    The function's arguments are the training parameters of all layers, and the index of
    the first layer to convert.
    """
    here, *onward = (tree[LAYERS] for tree in _way(trained, served))

    def weight(layer, name):
        x = lora.merge(trained.config.lora, *lora.parts(layer, name))
        first, *rest = (_without_layers(tree[name]) for tree in (here, *onward))
        x = _travel(x.astype(served.dtype), [first])
        return _travel(_widened(name, x, trained.config, served.config), rest)

    def merged(layer):
        names = [name for name in layer if not lora.is_adapter(name)]
        made = {name: weight(layer, name) for name in names}
        return _joined(made, served, lambda *pair: jnp.stack(pair, 1))

    last = _joined(onward[-1], served, _joined_sharding)

    @functools.partial(jax.jit, out_shardings=last)
    def served_layers(layers, first):
        return jax.lax.map(
            lambda n: merged({name: x[n] for name, x in layers.items()}),
            first + jnp.arange(served.stacked),
        )

    return served_layers


def _joined(layers: Params, served: InferenceDecoder, join: Callable) -> Params:
    """Replaces "gate" and "up" by "gate_up" = `join(gate, up)` if `served.joins`."""
    if not served.joins:
        return layers
    rest = {name: x for name, x in layers.items() if name not in ("gate", "up")}
    return rest | {"gate_up": join(layers["gate"], layers["up"])}


def _joined_sharding(gate: NamedSharding, _) -> NamedSharding:
    layers, d, f = (*gate.spec, None, None, None)[:3]
    return NamedSharding(gate.mesh, PartitionSpec(layers, d, None, f))


def _way(trained: Decoder, served: InferenceDecoder) -> list[Params]:
    """Returns the shardings that parameters have in turn, from training to inference.

    A sharding on `between_mesh`, if there is one, is in between. Without this step,
    XLA's partitioner would gather whole weights on every device.
    """
    assert trained.mesh is not None
    there = Decoder(served.config)
    way = [param_shardings(trained, trained.mesh), param_shardings(there, served.mesh)]
    between = between_mesh(trained.mesh, served.mesh)
    if between is not None:
        way.insert(1, param_shardings(there, between))
    return way


def _travel(x: jax.Array, way: Sequence[NamedSharding]) -> jax.Array:
    for sharding in way:
        x = jax.lax.with_sharding_constraint(x, sharding)
    return x


def _without_layers(sharding: NamedSharding) -> NamedSharding:
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))


def _widened(
    name: str, x: jax.Array, trained: DecoderConfig, served: DecoderConfig
) -> jax.Array:
    """Replicates kv heads, or pads query heads, if the weight `name` has such heads."""
    axis = 1 if name in ("q", "k", "v") else 0
    if name in ("k", "v", "k_bias", "v_bias"):
        return jnp.repeat(x, served.num_kv_heads // trained.num_kv_heads, axis)
    if name not in ("q", "q_bias", "o"):
        return x
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    of_kv_head = x.reshape(*before, trained.num_kv_heads, -1, *after)
    missing = served.num_heads // trained.num_kv_heads - of_kv_head.shape[axis + 1]
    padding = [(0, 0)] * of_kv_head.ndim
    padding[axis + 1] = 0, missing
    return jnp.pad(of_kv_head, padding).reshape(*before, served.num_heads, *after)
