"""A Hugging Face folder that is asked, not trained: tokenizer, sizes, sampler."""

import json
import os
import pathlib
from collections.abc import Sequence

import jax
import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from models.config import Qwen2Config
from models.hf import DTYPES, load_params, resolve_folder
from models.qwen2 import Qwen2
from rollout.jax_sampler import JaxSampler
from sharding.mesh import make_mesh

# Chat models end a turn with the first, base models a text with the second.
_END_TOKENS = ("<|im_end|>", "<|endoftext|>")


def find_folder(model: str | os.PathLike) -> pathlib.Path:
    """The Hugging Face folder of a model: itself, `hf/` of a workdir, or a hub id's.

    Raises:
      ValueError: there is none.
    """
    path = pathlib.Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        if not (path / "hf" / "config.json").is_file():
            raise ValueError(f"{path}: neither config.json nor an exported hf/ in it")
        return path / "hf"
    return resolve_folder(model)


def load_tokenizer(folder: pathlib.Path) -> PreTrainedTokenizerBase:
    """The folder's own tokenizer."""
    return AutoTokenizer.from_pretrained(folder)


def stop_token_ids(
    folder: pathlib.Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[int, ...]:
    """Every id that ends a completion: the tokenizer's, the folder's, and Qwen's two.

    A base model's generation_config.json names one of Qwen's two only, and after
    reinforcement learning it may use either.
    """
    ids = {tokenizer.eos_token_id}
    generation = folder / "generation_config.json"
    if generation.is_file():
        named = json.loads(generation.read_text("utf-8")).get("eos_token_id")
        ids |= set(named if isinstance(named, list) else [named])
    vocabulary = tokenizer.get_vocab()
    ids |= {vocabulary.get(token) for token in _END_TOKENS}
    return tuple(sorted(id for id in ids if id is not None))


def max_positions(folder: pathlib.Path) -> int:
    """Longest prompt and completion together that the model was made for, in tokens."""
    return Qwen2Config.from_folder(folder).max_positions


def resolve_dtype(folder: pathlib.Path, asked: str) -> str:
    """A key of `models.hf.DTYPES`; "auto" is what config.json records, or bfloat16.

    Raises:
      ValueError: for any other name.
    """
    dtype = asked
    if asked == "auto":
        raw = json.loads((folder / "config.json").read_text("utf-8"))
        dtype = raw.get("dtype") or raw.get("torch_dtype") or "bfloat16"
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: not one of {', '.join(DTYPES)}")
    return dtype


def open_jax_sampler(
    folder: pathlib.Path,
    *,
    dtype: str,
    slots: int,
    devices: Sequence[jax.Device] | None = None,
) -> JaxSampler:
    """Loads a folder onto all devices and serves it.

    Args:
      folder: with config.json and safetensors.
      dtype: of parameters, activations and cache, a key of `models.hf.DTYPES`.
      slots: completions decoded together.
      devices: defaults to all.
    """
    mesh = make_mesh(devices=devices)
    model = Qwen2(
        Qwen2Config.from_folder(folder),
        mesh=mesh,
        dtype=np.dtype(DTYPES[dtype]),
        param_dtype=np.dtype(DTYPES[dtype]),
    )
    return JaxSampler(model, mesh, load_params(folder, model, mesh), slots=slots)
