"""Reads and writes Hugging Face model folders, one tensor at a time."""

import collections
import contextlib
import fcntl
import glob
import itertools
import json
import math
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import huggingface_hub
import jax
import numpy as np
from jax.sharding import Mesh

from models.config import FAMILIES, DecoderConfig
from models.decoder import Decoder, Params
from models.safetensors_io import read_tensors, write_tensors
from models.tensors import (
    DTYPES,
    EMBEDDING,
    HEAD,
    export_tensors,
    place_tensors,
    rows,
    tensor_specs,
)

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
MAX_FILE_SIZE = 5 * 10**9  # bytes of an export, as on the Hugging Face Hub
_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_FILE_NAME = re.compile(r"[\w-][\w.-]*\.safetensors")
# Files that an export copies from the base's folder, as far as they exist.
CARRIED = tuple(
    "config.json generation_config.json tokenizer.json tokenizer_config.json"
    " tokenizer.model special_tokens_map.json added_tokens.json vocab.json merges.txt"
    " chat_template.jinja chat_template.json LICENSE LICENSE.txt NOTICE"
    " USE_POLICY.md".split()
)


def file_layout(folder: str | os.PathLike) -> dict[str, str] | None:
    """Reads the index of a model folder; returns file names by tensor name.

    Returns None if the index is missing, or if the folder has a `model.safetensors`:
    transformers then ignores the index too. Raises ValueError if the index is damaged.
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
                " .safetensors file; copy or download the index again"
            )
    return layout


def open_weights(folder: pathlib.Path, config: DecoderConfig) -> dict[str, np.ndarray]:
    """Returns the memory-mapped weights of a folder by Hugging Face name.

    The head of a tied model is included if the files contain it.

    Raises:
      ValueError: a file is missing or damaged; or a tensor is missing or unknown, or
        has a wrong shape or an unsupported dtype.
    """
    layout = file_layout(folder)
    tensors: dict[str, np.ndarray] = {}
    for file in sorted(set(layout.values())) if layout else [WEIGHTS]:
        if not (folder / file).is_file():
            if layout is None and any(folder.glob("model-*.safetensors")):
                file = INDEX
            raise ValueError(
                f"{folder / file}: no such file; download it, or convert other weights"
                " to safetensors (GGUF with tools.convert, others with transformers)"
            )
        for name, array in read_tensors(folder / file).items():
            # Llama 1 and 2 store rotary frequencies, which the config defines.
            if not name.endswith(".rotary_emb.inv_freq"):
                # A decoder that was saved without its head lacks the prefix.
                bare = name.startswith(("embed_tokens.", "layers.", "norm."))
                tensors[f"model.{name}" if bare else name] = array
    expected = {name: weight.hf_shape(config) for name, weight, _ in rows(config)}
    for name, shape in expected.items():
        if name not in tensors:
            tie = ", or set tie_word_embeddings to true in config.json"
            raise ValueError(
                f"{folder}: tensor {name} is missing; use the config.json of these"
                f" weights, or download the folder again{tie if name == HEAD else ''}"
            )
        if tensors[name].shape != shape:
            raise ValueError(
                f"{folder}: tensor {name} has shape {tensors[name].shape}, but"
                f" config.json requires {shape}; use the config.json of these weights"
            )
    known = {*expected, HEAD} if config.tie_word_embeddings else set(expected)
    if extra := sorted(set(tensors) - known):
        raise ValueError(
            f"{folder}: tensors that config.json does not define: {len(extra)}, such as"
            f" {extra[0]}; use the config.json of these weights, or remove the tensors"
        )
    return tensors


def load_params(
    folder: str | os.PathLike,
    model: Decoder,
    mesh: Mesh,
    *,
    on_loaded: Callable[[int], None] = lambda count: None,
) -> Params:
    """Loads the parameters of a Hugging Face folder onto the mesh, without adapters.

    Each process loads only the shards of its own devices. After each tensor,
    `on_loaded` is called with the tensor's number of parameters.

    Raises:
      ValueError: the weights cannot be opened (see `open_weights`) or sharded, or a
        stored head differs from the embedding that it is tied to.
    """
    config = model.config
    tensors = open_weights(pathlib.Path(folder), config)
    if config.tie_word_embeddings and HEAD in tensors:
        if not np.array_equal(tensors[HEAD], tensors[EMBEDDING]):
            raise ValueError(
                f"{folder}: {HEAD} differs from {EMBEDDING}, but config.json ties them;"
                " set its tie_word_embeddings to false"
            )
    return place_tensors(tensors, model, mesh, on_loaded=on_loaded)


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

    Replaces an existing folder, and merges adapters into the weights, which are split
    into files of `MAX_FILE_SIZE`. If `params` span several processes, all must call
    this function, and the first one writes.

    Args:
      assets: a folder whose files named in `CARRIED` are copied.
      dtype: the dtype of the weights, a key of `DTYPES`.
      card: the text of the folder's README.md; empty for no such file.

    Raises:
      ValueError: `dtype` is unknown, or a weight is not finite in `dtype`.
      OSError: a file cannot be read or written, for example to a full disk.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: must be one of {sorted(DTYPES)}")
    folder = pathlib.Path(folder)
    stream = export_tensors(params, config, DTYPES[dtype])
    local = all(x.is_fully_addressable for x in jax.tree.leaves(params))
    if not local and jax.process_index():
        collections.deque(stream, maxlen=0)
        return
    finite = _finite(stream, folder, dtype)
    specs = tensor_specs(config, DTYPES[dtype])
    sizes = {name: math.prod(x[0]) * x[1].itemsize for name, x in specs.items()}
    split = huggingface_hub.split_state_dict_into_shards_factory(
        sizes,
        get_storage_size=lambda size: size,
        filename_pattern="model{suffix}.safetensors",
        # A tensor above the limit would get a file before those of earlier tensors.
        max_shard_size=max(MAX_FILE_SIZE, *sizes.values()),
    )
    with replaced_folder(folder) as partial:
        copy_assets(assets, partial)
        _describe(partial / "config.json", dtype)
        if card:
            (partial / "README.md").write_text(card, encoding="utf-8")
        for file, names in split.filename_to_tensors.items():
            own = {name: specs[name] for name in names}
            write_tensors(partial / file, own, itertools.islice(finite, len(names)))
        if split.is_sharded:
            index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
            text = json.dumps(index, indent=2, sort_keys=True) + "\n"
            (partial / INDEX).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replaced_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new folder, which replaces `folder` at the end of the `with` block.

    If the block raises, `folder` is not changed. If it has files that the new folder
    lacks, it is not deleted but renamed. If `folder` is a symbolic link, its target is
    replaced. If several processes do this, the folder of the last remains.
    """
    folder = folder.resolve()
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*partial"):
        with contextlib.suppress(OSError), _opened(left) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if it is in use
            shutil.rmtree(left, ignore_errors=True)
    own, token = f".{folder.name}.", secrets.token_hex(4)
    partial = folder.with_name(f"{own}{token}.partial")
    replaced = folder.with_name(f"{own}{token}.replaced.partial")
    partial.mkdir(parents=True)
    try:
        with _opened(partial) as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield partial
        with contextlib.suppress(FileNotFoundError):
            folder.rename(replaced)
        partial.rename(folder)
        if others := _others(replaced) - _others(folder):
            kept = folder.with_name(f"{folder.name}.replaced-{token}")
            replaced.rename(kept)
            names = ", ".join(sorted(others))
            print(f"WARNING: {folder}: had other files ({names}); moved to {kept}")
    except BaseException as error:
        with contextlib.suppress(OSError):  # usually, `folder` was not moved
            replaced.rename(folder)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(folder)  # a write to a full disk names no file
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


@contextlib.contextmanager
def _opened(folder: pathlib.Path) -> Iterator[int]:
    """Yields a descriptor of a folder; a lock on it ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def made_once(folder: pathlib.Path) -> Iterator[bool]:
    """Locks `folder` in a cache of models; yields whether it still must be made.

    Another process that makes the same model waits, and then uses it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield not (folder / WEIGHTS).is_file()


def _others(folder: pathlib.Path) -> set[str]:
    """Returns the names in a folder, except weights: exports vary in their number."""
    names = {path.name for path in folder.glob("*")}
    return {name for name in names if not _WEIGHTS.fullmatch(name)}


def _finite(stream, folder: pathlib.Path, dtype: str):
    for name, array in stream:
        if bad := array.size - np.count_nonzero(np.isfinite(array)):
            raise ValueError(
                f"{folder} is not written: in {dtype}, {name} is not finite in {bad:,}"
                f" of {array.size:,} entries; use a dtype with a larger range or, if"
                " that does not help, weights of an earlier step"
            )
        yield name, array


def copy_assets(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Copies the files of a model folder that `CARRIED` names."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for name in CARRIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _describe(path: pathlib.Path, dtype: str) -> None:
    """Sets the dtype and the architecture in a config.json; vLLM reads both."""
    config = json.loads(path.read_text(encoding="utf-8"))
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["dtype"]
    named: dict[str, Any] = dict.fromkeys(keys, dtype)
    named["architectures"] = [FAMILIES[config["model_type"]][0]]
    if config != config | named:
        text = json.dumps(config | named, indent=2) + "\n"
        path.write_text(text, encoding="utf-8")
