"""Finds Hugging Face models that tools sample from or score, and reads their config."""

import dataclasses
import json
import os
import pathlib
import sys

import numpy as np
from jax.sharding import Mesh

from models.attention import default_implementation
from models.config import DecoderConfig
from models.decoder import Decoder
from models.hub import resolve_folder
from models.tensors import DTYPES
from rl.checksums import steps_in
from rl.files import read_json
from rl.problems.tokenizer import Tokenizer, default_stop_ids, load_tokenizer
from sharding.mesh import make_mesh

_EXPORT = "python -m tools.convert --workdir {} --out HFDIR"


@dataclasses.dataclass(frozen=True, slots=True)
class Pretrained:
    """Describes a Hugging Face model whose weights are not loaded yet."""

    folder: pathlib.Path  # folder with config.json and safetensors files
    dtype: str  # dtype of the weights, a key of `models.tensors.DTYPES`
    tokenizer: Tokenizer
    config: DecoderConfig
    stop_token_ids: tuple[int, ...]  # tokens that end a completion


def find_pretrained(model: str | os.PathLike, dtype: str = "auto") -> Pretrained:
    """Reads the config and tokenizer of a model; downloads the files of a hub id.

    Args:
      model: a Hugging Face folder, a run's workdir with an exported model, or a hub id.
      dtype: a key of `models.tensors.DTYPES`, or "auto" for the dtype of config.json
        (bfloat16 if it has none).

    Raises:
      ValueError: the model or its dtype cannot be used.
    """
    path = pathlib.Path(os.path.expanduser(model))
    if (path / "hf" / "config.json").is_file():
        folder = path / "hf"
        _warn_if_older(folder, path)
    elif (path / "checkpoints").is_dir():
        raise ValueError(
            f"{path}: this run has exported no model yet; `{_EXPORT.format(path)}`"
            " exports a checkpoint"
        )
    else:
        folder = resolve_folder(os.path.expanduser(model))
    config, tokenizer = DecoderConfig.from_folder(folder), load_tokenizer(folder)
    if dtype == "auto":
        raw = json.loads((folder / "config.json").read_text("utf-8"))
        dtype = raw.get("dtype") or raw.get("torch_dtype") or "bfloat16"
    if dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise ValueError(
            f"{folder}: dtype={dtype!r}: must be one of {known}; set --dtype"
        )
    stop = default_stop_ids(folder, tokenizer, vocab_size=config.vocab_size)
    return Pretrained(folder, dtype, tokenizer, config, tuple(stop))


def _warn_if_older(folder: pathlib.Path, workdir: pathlib.Path) -> None:
    """Warns if a run has a checkpoint that is newer than its exported folder."""
    newest = max(steps_in(workdir / "checkpoints"), default=0)
    path = workdir / "summary.json"  # written after the export
    summary = read_json(path) if path.is_file() else {"steps": newest, "exported": True}
    if newest > summary["steps"] or not summary["exported"]:
        print(
            f"WARNING: {folder} is older than the checkpoint of step {newest}; to use"
            f" the checkpoint, run `{_EXPORT.format(workdir)}` and give HFDIR",
            file=sys.stderr,
        )


def split_model(found: Pretrained) -> tuple[Decoder, Mesh]:
    """Returns the model without its weights, and a mesh of all devices."""
    mesh, dtype = make_mesh(), np.dtype(DTYPES[found.dtype])
    model = Decoder(
        found.config,
        mesh=mesh,
        dtype=dtype,
        param_dtype=dtype,
        attention=default_implementation(mesh, DTYPES[found.dtype]),
    )
    return model, mesh
