"""Opens Hugging Face models for sampling and scoring without training."""

import dataclasses
import json
import os
import pathlib

import numpy as np
from jax.sharding import Mesh

from models.attention import default_implementation
from models.config import DecoderConfig
from models.decoder import Decoder
from models.hf import DTYPES, load_params
from models.hub import resolve_folder
from rl.problems.reading import HELD_OUT, read_problems
from rl.problems.templates import check_template
from rl.problems.tokenizer import default_stop_ids, load_tokenizer
from rl.types import Problem
from rollout.jax_sampler import JaxSampler
from rollout.layout import device_memory, make_layout
from sharding.mesh import make_mesh
from tools.evaluation.run import Pretrained


def find_pretrained(model: str | os.PathLike, dtype: str = "auto") -> Pretrained:
    """Reads the config and tokenizer of a model.

    Args:
      model: a Hugging Face folder, a run's workdir with an exported model, or a hub id.
      dtype: a key of `models.hf.DTYPES`, or "auto" for the dtype of config.json.

    Raises:
      ValueError: the model does not exist, or `dtype` is unknown.
    """
    folder = find_folder(model)
    config, tokenizer = DecoderConfig.from_folder(folder), load_tokenizer(folder)
    size = config.vocab_size
    return Pretrained(
        folder=folder,
        dtype=resolve_dtype(folder, dtype),
        tokenizer=tokenizer,
        stop_token_ids=tuple(default_stop_ids(folder, tokenizer, vocab_size=size)),
        vocab_size=size,
        max_positions=config.max_positions,
    )


def find_folder(model: str | os.PathLike) -> pathlib.Path:
    """Returns the Hugging Face folder of a model; downloads a hub id.

    Args:
      model: a Hugging Face folder, a run's workdir with an exported model, or a hub id.

    Raises:
      ValueError: the folder, the export or the hub id does not exist.
    """
    model = os.path.expanduser(model)
    path = pathlib.Path(model)
    if (path / "hf" / "config.json").is_file():
        return path / "hf"
    if (path / "checkpoints").is_dir():
        raise ValueError(
            f"{path}: this run has exported no model yet; `python -m tools.convert "
            f"--workdir {path} --out HFDIR` exports a checkpoint"
        )
    return resolve_folder(model)


def resolve_dtype(folder: pathlib.Path, asked: str) -> str:
    """Returns `asked`, or for "auto" the dtype of config.json (default bfloat16).

    Raises:
      ValueError: the dtype is not a key of `models.hf.DTYPES`.
    """
    dtype = asked
    if asked == "auto":
        raw = json.loads((folder / "config.json").read_text("utf-8"))
        dtype = raw.get("dtype") or raw.get("torch_dtype") or "bfloat16"
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: must be one of {', '.join(DTYPES)}")
    return dtype


def split_model(folder: pathlib.Path, *, dtype: str) -> tuple[Decoder, Mesh]:
    """Returns a folder's model without weights, and a mesh of all devices."""
    mesh = make_mesh()
    model = Decoder(
        DecoderConfig.from_folder(folder),
        mesh=mesh,
        dtype=np.dtype(DTYPES[dtype]),
        param_dtype=np.dtype(DTYPES[dtype]),
        attention=default_implementation(mesh, DTYPES[dtype]),
    )
    return model, mesh


def open_jax_sampler(
    folder: pathlib.Path, *, dtype: str, slots: int, context: int
) -> JaxSampler:
    """Loads a model onto all devices and returns its sampler.

    Each copy of the weights is split over as few devices as can hold it together with
    its part of the cache.

    Args:
      folder: a Hugging Face folder.
      dtype: a key of `models.hf.DTYPES`.
      slots: number of completions that are decoded together.
      context: maximum length of prompt and completion together, in tokens.

    Raises:
      ValueError: weights and cache do not fit on the devices.
    """
    model, mesh = split_model(folder, dtype=dtype)
    longest = make_layout(
        model,
        slots=slots,
        tensor=0,
        response_length=context,
        # A prompt may be as long as the context.
        partial=True,
        room=device_memory(mesh),
    )
    # Without fixed lengths, each call compiles shapes for its own lengths.
    layout = dataclasses.replace(longest, response_length=0, partial=False)
    return JaxSampler(layout, load_params(folder, model, mesh))


def held_out(workdir: pathlib.Path) -> tuple[list[Problem], str]:
    """Returns the held-out problems of a run, and the template of its prompts.

    Functions that the run's config names are not imported.

    Raises:
      ValueError: the folder has no held-out problems, or no valid template.
    """
    path = workdir / HELD_OUT
    if not path.is_file():
        raise ValueError(
            f"{workdir}: no {path.name}; give a workdir with held-out problems"
        )
    config = workdir / "config.json"
    try:
        template = json.loads(config.read_text("utf-8"))["data"]["template"]
        check_template(template)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{config}: no valid data.template: {error}") from None
    return read_problems(path), template
