"""Hugging Face folders in and out: one table of names and shapes.

The same table serves loading, export and weight synchronisation. Both directions go
tensor by tensor, so that host memory peaks near one tensor rather than one model.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models import lora
from models.config import FAMILIES, DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from models.safetensors_io import Specs, read_tensors, write_tensors
from sharding.rules import laid_out

DType = Literal["bfloat16", "float16", "float32"]  # of a run: JAX makes no float64
DTYPES = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_FILE_NAME = re.compile(r"[\w-][\w.-]*\.safetensors")
# What travels beside the weights: everything that a user of the folder reads.
_CARRIED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
    "USE_POLICY.md",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """One row of the table.

    Attributes:
      hf_name: Hugging Face name, `{}` standing for the layer.
      path: ours, from the root of the parameter tree.
      hf_shape: shape in the file. A `linear` weight is [out, in] there and
        [in..., out...] here; anything else differs by a reshape at most.
      linear: whether the file holds the transpose.
      among: whether a model has it.
    """

    hf_name: str
    path: tuple[str, ...]
    hf_shape: Callable[[DecoderConfig], tuple[int, ...]]
    linear: bool = False
    among: Callable[[DecoderConfig], bool] = lambda config: True

    @property
    def layered(self) -> bool:
        return "{}" in self.hf_name

    def to_ours(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """A view of the file's array in our shape, without the layer axis."""
        return (array.T if self.linear else array).reshape(shape)

    def to_hf(self, array: np.ndarray, config: DecoderConfig) -> np.ndarray:
        """A view of our array, without the layer axis, in the file's shape."""
        shape = self.hf_shape(config)
        return array.reshape(shape[::-1]).T if self.linear else array.reshape(shape)


def _layer(hf_name, name, hf_shape, linear=False, **options):
    name_there = f"model.layers.{{}}.{hf_name}"
    return Weight(name_there, ("layers", name), hf_shape, linear, **options)


def _heads(c: DecoderConfig) -> int:
    return c.num_heads * c.head_dim


def _kv_heads(c: DecoderConfig) -> int:
    return c.num_kv_heads * c.head_dim


# fmt: off
TABLE: tuple[Weight, ...] = (
    Weight("model.embed_tokens.weight", ("embedding",),
           lambda c: (c.vocab_size, c.hidden_size)),
    _layer("self_attn.q_proj.weight", "q", lambda c: (_heads(c), c.hidden_size), True),
    _layer("self_attn.q_proj.bias", "q_bias", lambda c: (_heads(c),),
           among=lambda c: c.qkv_bias),
    _layer("self_attn.q_norm.weight", "q_norm", lambda c: (c.head_dim,),
           among=lambda c: c.qk_norm),
    _layer("self_attn.k_proj.weight", "k",
           lambda c: (_kv_heads(c), c.hidden_size), True),
    _layer("self_attn.k_proj.bias", "k_bias", lambda c: (_kv_heads(c),),
           among=lambda c: c.qkv_bias),
    _layer("self_attn.k_norm.weight", "k_norm", lambda c: (c.head_dim,),
           among=lambda c: c.qk_norm),
    _layer("self_attn.v_proj.weight", "v",
           lambda c: (_kv_heads(c), c.hidden_size), True),
    _layer("self_attn.v_proj.bias", "v_bias", lambda c: (_kv_heads(c),),
           among=lambda c: c.qkv_bias),
    _layer("self_attn.o_proj.weight", "o", lambda c: (c.hidden_size, _heads(c)), True),
    _layer("mlp.gate_proj.weight", "gate",
           lambda c: (c.intermediate_size, c.hidden_size), True),
    _layer("mlp.up_proj.weight", "up",
           lambda c: (c.intermediate_size, c.hidden_size), True),
    _layer("mlp.down_proj.weight", "down",
           lambda c: (c.hidden_size, c.intermediate_size), True),
    _layer("input_layernorm.weight", "attention_norm", lambda c: (c.hidden_size,)),
    _layer("post_attention_layernorm.weight", "mlp_norm", lambda c: (c.hidden_size,)),
    Weight("model.norm.weight", ("final_norm",), lambda c: (c.hidden_size,)),
    Weight("lm_head.weight", ("head",), lambda c: (c.vocab_size, c.hidden_size),
           among=lambda c: not c.tie_word_embeddings),
)
# fmt: on


def rows(config: DecoderConfig) -> Iterator[tuple[str, Weight, int | None]]:
    """Every tensor of a model in file order, as `(HF name, row, layer or None)`."""
    table = [weight for weight in TABLE if weight.among(config)]
    layered = [weight for weight in table if weight.layered]
    before, after = table.index(layered[0]), table.index(layered[-1]) + 1
    for weight in table[:before]:
        yield weight.hf_name, weight, None
    for layer in range(config.num_layers):
        for weight in layered:
            yield weight.hf_name.format(layer), weight, layer
    for weight in table[after:]:
        yield weight.hf_name, weight, None


def tensor_specs(config: DecoderConfig, dtype: np.dtype) -> Specs:
    """`(shape, dtype)` of every tensor in Hugging Face names."""
    return {
        name: (weight.hf_shape(config), np.dtype(dtype))
        for name, weight, _ in rows(config)
    }


# -- in ------------------------------------------------------------------------------


def resolve_folder(
    model: str | os.PathLike, *, described_in: pathlib.Path | None = None
) -> pathlib.Path:
    """A local folder as it is, or a hub id downloaded to the cache.

    Args:
      model: the folder, or the id.
      described_in: gets all but the weights of a model whose weights are not in the
        cache, which stays as it is.

    Raises:
      ValueError: neither a folder nor a reachable hub id; or, before its weights are
        downloaded, of an architecture that is not built.
    """
    folder = pathlib.Path(model).expanduser()
    if folder.is_dir():
        return folder
    text = str(model)
    if text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise ValueError(f"{text}: no such model folder")
    import huggingface_hub

    def fetch(*names: str, **where: Any) -> pathlib.Path:
        found = huggingface_hub.snapshot_download(
            text, allow_patterns=[*_CARRIED, *names], **where
        )
        return pathlib.Path(found)

    with _asking_the_hub(text):
        if described_in is not None:
            # Another program may have cached a part: of a description without its
            # generation config, stop tokens would be lost until the weights come.
            for name in (_SINGLE, _INDEX):
                cached = huggingface_hub.try_to_load_from_cache(text, name)
                if isinstance(cached, str):
                    return pathlib.Path(cached).parent
            return fetch(local_dir=described_in)
        described = fetch()
    # What is not built is refused before its weights travel.
    DecoderConfig.from_folder(described)
    with _asking_the_hub(text):
        return fetch("*.safetensors", _INDEX)


@contextlib.contextmanager
def _asking_the_hub(model: str) -> Iterator[None]:
    """The hub's many types of errors, offline, private or misspelt, as one line."""
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{model}: no such local folder, and the hub does not give it ({reason})"
        ) from None


def _open_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    layout = file_layout(folder)
    files = sorted(set(layout.values())) if layout else [_SINGLE]
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        if not (folder / file).is_file():
            raise ValueError(f"{folder / file}: no such file")
        tensors.update(read_tensors(folder / file))
    return tensors


def file_layout(folder: str | os.PathLike) -> dict[str, str] | None:
    """The index's `{tensor: file}`, or None where one file holds all.

    Raises:
      ValueError: a damaged index, or one that names a file outside of its folder.
    """
    path = pathlib.Path(folder) / _INDEX
    if not path.is_file():
        return None
    try:
        layout = dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged index: {error!r}") from None
    for file in layout.values():
        if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
            raise ValueError(f"{path}: {file!r} is no name of a weights file")
    return layout


def load_params(
    folder: str | os.PathLike,
    model: Decoder,
    mesh: Mesh,
    *,
    on_loaded: Callable[[int], None] = lambda count: None,
) -> Params:
    """Reads a folder's safetensors onto the mesh.

    Args:
      folder: holds `model.safetensors`, or several files with their index.
      model: gives the architecture and the parameters' dtype.
      mesh: each process reads only what its own devices hold.
      on_loaded: told of each tensor, by its count of parameters.

    Returns:
      The parameter tree, sharded.

    Raises:
      ValueError: a tensor is missing, left over, or of another shape.
    """
    folder = pathlib.Path(folder)
    config = model.config
    tensors = _open_tensors(folder)
    expected = {name: weight.hf_shape(config) for name, weight, _ in rows(config)}
    if config.tie_word_embeddings:  # some writers store the alias too
        head = tensors.pop("lm_head.weight", None)
        embedding = tensors.get("model.embed_tokens.weight")
        if head is not None and not np.array_equal(head, embedding):
            raise ValueError(
                f"{folder}: lm_head.weight is no copy of model.embed_tokens.weight, but"
                " config.json says tie_word_embeddings"
            )
    for name, shape in expected.items():
        if name not in tensors:
            raise ValueError(f"{folder}: tensor {name} is missing")
        if tensors[name].shape != shape:
            raise ValueError(
                f"{folder}: {name} has shape {tensors[name].shape}, not {shape}"
            )
    if extra := sorted(set(tensors) - set(expected)):
        raise ValueError(f"{folder}: {len(extra)} unknown tensors, such as {extra[0]}")

    shapes, _ = abstract_params(model)
    shardings = param_shardings(model, mesh)
    params: dict[str, Any] = {"layers": {}}
    for name, weight, layer in rows(config):
        shape, sharding = at(shapes, weight.path), at(shardings, weight.path)
        if layer is None:
            ours = weight.to_ours(tensors[name], shape.shape)
            array = _place(ours, sharding).astype(shape.dtype)
        else:
            one = NamedSharding(mesh, PartitionSpec(*sharding.spec[1:]))
            ours = weight.to_ours(tensors[name], shape.shape[1:])
            stack = params["layers"].get(weight.path[-1])
            if stack is None:
                stack = _zeros(shape.shape, shape.dtype, sharding)
            array = _insert(stack, _place(ours, one), layer)
        at(params, weight.path[:-1])[weight.path[-1]] = array
        on_loaded(tensors[name].size)
    return params


def at(tree: Params, path: Sequence[str]):
    """What a tree of parameters has at a `Weight.path`."""
    return functools.reduce(lambda node, key: node[key], path, tree)


def _place(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback(
        array.shape, sharding, lambda index: np.ascontiguousarray(array[index])
    )


def _zeros(shape, dtype, sharding):
    return jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)()


@functools.partial(jax.jit, donate_argnums=0)
def _insert(stack: jax.Array, one: jax.Array, layer: int) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(
        stack, one.astype(stack.dtype), layer, axis=0
    )


# -- out -----------------------------------------------------------------------------


def export_tensors(
    params: Params,
    config: DecoderConfig,
    dtype: np.dtype,
    *,
    names: Container[str] | None = None,
) -> Iterator[tuple[str, np.ndarray]]:
    """Streams the parameters to the host, one Hugging Face tensor at a time.

    With several processes every one of them must run the iterator to its end: each
    tensor is gathered by all.

    Args:
      params: the parameter tree, sharded or not.
      config: its architecture.
      dtype: of the arrays yielded.
      names: only these tensors; None for all.

    Yields:
      `(HF name, array)` in file order, laid out and cast to `dtype` on the devices,
      which prepare the next layer while the caller writes this one.
    """
    ahead: collections.deque[tuple[list[str], tuple[jax.Array, ...]]] = (
        collections.deque()
    )
    for layer in _layers(params, config, dtype, names=names):
        ahead.append(layer)
        if len(ahead) == 2:
            yield from _to_host(*ahead.popleft())
    while ahead:
        yield from _to_host(*ahead.popleft())


def _layers(params, config, dtype, *, names=None):
    sharding = None
    if jax.process_count() > 1:
        sharding = laid_out(jax.tree.leaves(params)[0].sharding.mesh)
    wanted = [row for row in rows(config) if names is None or row[0] in names]
    for layer, group in itertools.groupby(wanted, key=lambda row: row[2]):
        hf_names, weights, _ = zip(*group, strict=True)
        arrays = tuple(
            lora.parts(at(params, weight.path[:-1]), weight.path[-1])
            for weight in weights
        )
        index = 0 if layer is None else layer
        yield hf_names, lay_out(weights, config, dtype, sharding, arrays, index)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def lay_out(weights, config, dtype, sharding, arrays, layer):
    """Returns arrays as the file has them; one layer of those that have layers.

    Each is given with its adapters, if it has any, which are merged into it.
    """
    found = []
    for weight, parts in zip(weights, arrays, strict=True):
        if weight.layered:
            parts = [
                jax.lax.dynamic_index_in_dim(x, layer, keepdims=False) for x in parts
            ]
        array = weight.to_hf(lora.merge(config.lora, *parts).astype(dtype), config)
        if sharding is not None:
            array = jax.lax.with_sharding_constraint(array, sharding)
        found.append(array)
    return tuple(found)


def _to_host(hf_names, arrays) -> Iterator[tuple[str, np.ndarray]]:
    for name, array in zip(hf_names, arrays, strict=True):
        whole = array if array.is_fully_addressable else array.addressable_data(0)
        yield name, np.asarray(whole)


def save_folder(
    folder: str | os.PathLike,
    params: Params,
    config: DecoderConfig,
    *,
    assets: str | os.PathLike,
    dtype: str = "bfloat16",
    max_shard_bytes: int = 5 * 10**9,
    card: str = "",
) -> None:
    """Writes a Hugging Face folder; it appears under its name only when complete.

    With several processes all of them call it, and the first one writes.

    Args:
      folder: replaced if it exists.
      params: the parameter tree, sharded or not.
      config: its architecture.
      assets: folder with `config.json`, tokenizer, chat template and generation files
        to carry along, and possibly an index whose file names are kept.
      dtype: of the weights, a key of `DTYPES`.
      max_shard_bytes: largest file, where `assets` gives no layout.
      card: README.md of the folder; empty for none.

    Raises:
      ValueError: a weight is NaN or infinite, as it is or in `dtype`.
      OSError: the disk is full; names the file. A folder that was there before stays.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: must be one of {sorted(DTYPES)}")
    folder = pathlib.Path(folder)
    specs = tensor_specs(config, DTYPES[dtype])
    kept = file_layout(assets) or {}
    layout = {name: kept[name] for name in specs if name in kept}
    if len(layout) != len(specs):
        layout = _split(specs, max_shard_bytes)
    partial = folder.with_name(f".{folder.name}.partial")
    # A model on one process's own devices is that process's to write.
    local = all(x.is_fully_addressable for x in jax.tree.leaves(params))
    writes = local or jax.process_index() == 0
    if writes:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        if writes:
            copy_assets(assets, partial)
            _describe(partial / "config.json", dtype)
            if card:
                _write_text(partial / "README.md", card)
            _write_index(partial, layout, specs)
        for file in sorted(set(layout.values())):
            subset = {name: specs[name] for name in specs if layout[name] == file}
            stream = export_tensors(params, config, DTYPES[dtype], names=subset)
            if not writes:
                collections.deque(stream, maxlen=0)
                continue
            stream = _finite(stream, folder, dtype)
            with _named(folder / file):
                write_tensors(partial / file, subset, stream, metadata={"format": "pt"})
    except BaseException:
        if writes:
            shutil.rmtree(partial)
        raise
    if writes:
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)


def _finite(stream, folder: pathlib.Path, dtype: str):
    for name, array in stream:
        if bad := array.size - np.count_nonzero(np.isfinite(array)):
            raise ValueError(
                f"{folder} is not written: {bad:,} of {array.size:,} entries of {name}"
                f" are not finite in {dtype}"
            )
        yield name, array


def copy_assets(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Copies what describes a model, but for its weights, between folders."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for name in (*_CARRIED, _INDEX):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _split(specs: Specs, max_bytes: int) -> dict[str, str]:
    """Greedy files of at most `max_bytes`, in the names that transformers uses."""
    shards, size = [[]], 0
    for name, (shape, dtype) in specs.items():
        nbytes = int(np.prod(shape)) * dtype.itemsize
        if shards[-1] and size + nbytes > max_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += nbytes
    if len(shards) == 1:
        return dict.fromkeys(specs, _SINGLE)
    return {
        name: f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        for i, shard in enumerate(shards, 1)
        for name in shard
    }


def _write_index(folder: pathlib.Path, layout: Mapping[str, str], specs: Specs):
    path = folder / _INDEX
    if set(layout.values()) == {_SINGLE}:
        path.unlink(missing_ok=True)
        return
    total = sum(int(np.prod(s)) * d.itemsize for s, d in specs.values())
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    metadata = {**old.get("metadata", {}), "total_size": total}
    index = {"metadata": metadata, "weight_map": dict(sorted(layout.items()))}
    _write_text(path, json.dumps(index, indent=2) + "\n")


def _describe(path: pathlib.Path, dtype: str) -> None:
    """Names the weights' dtype, and the architecture by which vLLM finds its class.

    A file that names both already stays as it is.
    """
    config = json.loads(path.read_text(encoding="utf-8"))
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["dtype"]
    said: dict[str, Any] = dict.fromkeys(keys, dtype)
    if not config.get("architectures"):
        said["architectures"] = [FAMILIES[config["model_type"]][0]]
    if config != config | said:
        _write_text(path, json.dumps(config | said, indent=2) + "\n")


def _write_text(path: pathlib.Path, text: str) -> None:
    with _named(path):
        path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _named(path: pathlib.Path) -> Iterator[None]:
    """Names the file of an error: the system does not say which disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
