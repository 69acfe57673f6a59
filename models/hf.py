"""Reads and writes Hugging Face model folders, with the names of `models.names`.

Reading and writing handle one tensor at a time, to limit the peak of host memory.
"""

import collections
import contextlib
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models import lora
from models.config import FAMILIES, DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from models.names import at, rows, tensor_specs
from models.safetensors_io import Specs, read_tensors, write_tensors
from sharding.rules import laid_out

DType = Literal["bfloat16", "float16", "float32"]  # JAX disables float64 by default
DTYPES = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
_FILE_NAME = re.compile(r"[\w-][\w.-]*\.safetensors")
# Files that are copied to exported folders in addition to the weights.
CARRIED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
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


# -- reading -------------------------------------------------------------------------


def _open_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the memory-mapped tensors of a folder by their names in `models.names`.

    Folders of a decoder without a head lack the prefix `model.`, which is added. The
    rotary frequencies in folders of Llama 1 and 2 are ignored; the config defines them.
    """
    layout = file_layout(folder)
    tensors: dict[str, np.ndarray] = {}
    for file in sorted(set(layout.values())) if layout else [WEIGHTS]:
        if not (folder / file).is_file():
            raise ValueError(f"{folder / file}: no such file{_other_weights(folder)}")
        for name, array in read_tensors(folder / file).items():
            if not name.endswith(".rotary_emb.inv_freq"):
                bare = name.startswith(("embed_tokens.", "layers.", "norm."))
                tensors[f"model.{name}" if bare else name] = array
    return tensors


def _other_weights(folder: pathlib.Path) -> str:
    for path in sorted(folder.iterdir()):
        if path.suffix in (".pth", ".gguf") or path.name.startswith("pytorch_model"):
            tool = "tools.convert" if path.suffix == ".gguf" else "transformers"
            return f"; convert {path.name} to safetensors with {tool}"
    return ""


def file_layout(folder: str | os.PathLike) -> dict[str, str] | None:
    """Reads the index of a model folder.

    As in transformers, the index is ignored if the folder has a `model.safetensors`.

    Returns:
      The file name of each tensor by Hugging Face name; None without an index, or if it
      is ignored.

    Raises:
      ValueError: the index is damaged or contains an invalid file name.
    """
    path = pathlib.Path(folder) / INDEX
    if not path.is_file() or (path.parent / WEIGHTS).is_file():
        return None
    try:
        layout = dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: damaged index ({error!r}); copy or download it again"
        ) from None
    for file in layout.values():
        if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
            raise ValueError(
                f"{path}: weight_map contains {file!r}: must be the name of a"
                " .safetensors file"
            )
    return layout


def open_weights(folder: pathlib.Path, config: DecoderConfig) -> dict[str, np.ndarray]:
    """Opens the weights of a folder and compares them with the architecture.

    Returns:
      The memory-mapped tensors by their names in `models.names`.

    Raises:
      ValueError: a file is missing, damaged or of an unsupported dtype; a tensor is
        missing, unknown, or has another shape; or a stored head differs from the
        embedding it is tied to.
    """
    tensors = _open_tensors(folder)
    expected = {name: weight.hf_shape(config) for name, weight, _ in rows(config)}
    if config.tie_word_embeddings:  # some folders also store the tied head
        head = tensors.pop("lm_head.weight", None)
        embedding = tensors.get("model.embed_tokens.weight")
        if embedding is None or head is None:
            pass  # a missing embedding is reported below
        elif not np.array_equal(head, embedding):
            raise ValueError(
                f"{folder}: lm_head.weight differs from model.embed_tokens.weight; set"
                " tie_word_embeddings to false in config.json"
            )
    for name, shape in expected.items():
        if name not in tensors:
            raise ValueError(
                f"{folder}: tensor {name} is missing; copy or download the folder again"
            )
        if tensors[name].shape != shape:
            raise ValueError(
                f"{folder}: tensor {name} has shape {tensors[name].shape}, but"
                f" config.json requires {shape}; use the config.json of these weights"
            )
    if extra := sorted(set(tensors) - set(expected)):
        raise ValueError(
            f"{folder}: {len(extra)} tensors, such as {extra[0]}, are not in the"
            " architecture of config.json; use the config.json of these weights"
        )
    return tensors


def load_params(
    folder: str | os.PathLike,
    model: Decoder,
    mesh: Mesh,
    *,
    on_loaded: Callable[[int], None] = lambda count: None,
) -> Params:
    """Loads the parameters of a Hugging Face folder onto the mesh.

    Args:
      folder: a folder with `model.safetensors`, or with several files and an index.
      model: the model, for its architecture and the dtype of its parameters.
      mesh: the device mesh; each process loads only the shards of its own devices.
      on_loaded: a function called after each tensor with its number of parameters.

    Returns:
      The sharded parameter tree.

    Raises:
      ValueError: the weights cannot be used (see `open_weights`) or not be sharded.
    """
    config = model.config
    tensors = open_weights(pathlib.Path(folder), config)
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


# -- writing -------------------------------------------------------------------------


def export_tensors(
    params: Params,
    config: DecoderConfig,
    dtype: np.dtype,
    *,
    names: Container[str] | None = None,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the parameters as host arrays, one Hugging Face tensor at a time.

    With several processes, all processes must exhaust the iterator, because each tensor
    is gathered collectively.

    Args:
      params: the parameter tree, sharded or not.
      config: the architecture of the parameters.
      dtype: the dtype of the yielded arrays.
      names: the tensors to yield; None for all.

    Yields:
      `(Hugging Face name, array)` in the order of `models.names.rows`. The devices
      convert the next layer while the caller writes the current one.
    """
    ahead: collections.deque[tuple[tuple[str, ...], tuple[jax.Array, ...]]] = (
        collections.deque()
    )
    for hf_names, arguments in conversions(params, config, dtype, names=names):
        ahead.append((hf_names, lay_out(*arguments)))
        if len(ahead) == 2:
            yield from _to_host(*ahead.popleft())
    while ahead:
        yield from _to_host(*ahead.popleft())


def conversions(
    params: Params,
    config: DecoderConfig,
    dtype: np.dtype,
    *,
    names: Container[str] | None = None,
) -> Iterator[tuple[tuple[str, ...], tuple[Any, ...]]]:
    """Yields the names of a layer's tensors and the arguments of `lay_out` for them.

    Takes the arguments of `export_tensors`; `params` may be shapes instead of arrays.
    """
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
        yield hf_names, (weights, config, dtype, sharding, arrays, index)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def lay_out(weights, config, dtype, sharding, arrays, layer):
    """Converts weights to the shapes and dtype of their Hugging Face tensors.

    Args:
      weights: the weights, all of one layer or all outside the layers.
      config: the architecture.
      dtype: the dtype of the result.
      sharding: the sharding of the result; None leaves it to the compiler.
      arrays: for each weight, its array in the parameter tree, followed by its adapters
        A and B if it has any, which are merged.
      layer: the index of the layer; ignored for weights outside the layers.
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
    card: str = "",
) -> None:
    """Writes a Hugging Face folder, which gets its name only when it is complete.

    If `params` span several processes, all must call this function, and the first
    process writes. Otherwise the calling process writes.

    Args:
      folder: the folder to write; an existing one is replaced.
      params: the parameter tree, sharded or not.
      config: the architecture of the parameters.
      assets: a folder whose config, tokenizer, chat template and generation config are
        copied. If its index has all tensors, the weights are split into the same files.
      dtype: the dtype of the weights, a key of `DTYPES`.
      card: the text of the folder's README.md; empty for no such file.

    Raises:
      ValueError: `dtype` is unknown, the index of `assets` is damaged, or a weight is
        not finite in `dtype`.
      OSError: a file cannot be written, for example to a full disk. An existing folder
        is not changed.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: must be one of {sorted(DTYPES)}")
    folder = pathlib.Path(folder)
    specs = tensor_specs(config, DTYPES[dtype])
    kept = file_layout(assets) or {}
    layout = {name: kept[name] for name in specs if name in kept}
    if len(layout) != len(specs):
        layout = dict.fromkeys(specs, WEIGHTS)
    # A model whose devices all belong to this process is written by this process.
    local = all(x.is_fully_addressable for x in jax.tree.leaves(params))
    writes = local or jax.process_index() == 0
    target = replaced_folder(folder) if writes else contextlib.nullcontext(folder)
    with target as partial:
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


@contextlib.contextmanager
def replaced_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty folder, which replaces `folder` at the end of the `with` block.

    If the block raises, the new folder is removed, and `folder` is not changed. If
    `folder` is a symbolic link, the folder that it points to is replaced.
    """
    folder = folder.resolve()
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


def _finite(stream, folder: pathlib.Path, dtype: str):
    for name, array in stream:
        if bad := array.size - np.count_nonzero(np.isfinite(array)):
            raise ValueError(
                f"{folder} is not written: {bad:,} of {array.size:,} entries of {name}"
                f" are not finite in {dtype}; use a dtype with a larger range, or"
                " weights of an earlier step"
            )
        yield name, array


def copy_assets(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Copies the files in `CARRIED`, and an index in use, to another folder."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    # In a folder with a single weights file, an index belongs to other weights.
    index = [] if (source / WEIGHTS).is_file() else [INDEX]
    for name in (*CARRIED, *index):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _write_index(folder: pathlib.Path, layout: Mapping[str, str], specs: Specs):
    path = folder / INDEX
    if set(layout.values()) == {WEIGHTS}:
        path.unlink(missing_ok=True)
        return
    total = sum(int(np.prod(s)) * d.itemsize for s, d in specs.values())
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    metadata = {**old.get("metadata", {}), "total_size": total}
    index = {"metadata": metadata, "weight_map": dict(sorted(layout.items()))}
    _write_text(path, json.dumps(index, indent=2) + "\n")


def _describe(path: pathlib.Path, dtype: str) -> None:
    """Sets the dtype and the architecture in a config.json; vLLM reads both.

    A file that already has both values is not rewritten.
    """
    config = json.loads(path.read_text(encoding="utf-8"))
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["dtype"]
    named: dict[str, Any] = dict.fromkeys(keys, dtype)
    named["architectures"] = [FAMILIES[config["model_type"]][0]]
    if config != config | named:
        _write_text(path, json.dumps(config | named, indent=2) + "\n")


def _write_text(path: pathlib.Path, text: str) -> None:
    with _named(path):
        path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _named(path: pathlib.Path) -> Iterator[None]:
    """Adds the file name to an OSError, which lacks it if the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
