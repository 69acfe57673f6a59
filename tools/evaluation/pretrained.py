"""A Hugging Face folder that is asked and not trained."""

import dataclasses
import json
import os
import pathlib

import numpy as np
from jax.sharding import Mesh

from models.attention import default_implementation
from models.config import DecoderConfig
from models.decoder import Decoder
from models.hf import DTYPES, load_params, resolve_folder
from rl.problems.reading import HELD_OUT, read_problems
from rl.problems.templates import check_template
from rl.types import Problem
from rollout.jax_sampler import JaxSampler
from rollout.layout import device_memory, make_layout
from sharding.mesh import make_mesh


def find_folder(model: str | os.PathLike) -> pathlib.Path:
    """The Hugging Face folder of a model: itself, `hf/` of a workdir, or a hub id's.

    Raises:
      ValueError: there is none.
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
    if path.is_dir() and not (path / "config.json").is_file():
        raise ValueError(f"{path}: no config.json in it")
    return resolve_folder(model)


def max_positions(folder: pathlib.Path) -> int:
    """Longest prompt and completion together that the model was made for, in tokens."""
    return DecoderConfig.from_folder(folder).max_positions


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


def split_model(folder: pathlib.Path, *, dtype: str) -> tuple[Decoder, Mesh]:
    """The model of a folder, to be split over all devices; its weights are not read.

    Args:
      folder: with config.json.
      dtype: of parameters and activations, a key of `models.hf.DTYPES`.
    """
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
    folder: pathlib.Path, *, dtype: str, slots: int, context: int, tensor: int = 0
) -> JaxSampler:
    """Loads a folder onto all devices and serves it.

    Args:
      folder: with config.json and safetensors.
      dtype: of parameters, activations and cache, a key of `models.hf.DTYPES`.
      slots: completions decoded together, on all devices.
      context: longest prompt and completion together, in tokens.
      tensor: devices that share one copy of the parameters; 0: the fewest that hold it
        with a cache of `context` tokens for each slot.

    Raises:
      ValueError: it does not fit, or `tensor` devices cannot share it.
    """
    model, mesh = split_model(folder, dtype=dtype)
    longest = make_layout(
        model,
        slots=slots,
        tensor=tensor,
        response_length=context,
        # A prompt may be as long as the context.
        begun=True,
        room=device_memory(mesh),
    )
    # Each call has the shapes of its own lengths.
    layout = dataclasses.replace(longest, response_length=0, begun=False)
    return JaxSampler(layout, load_params(folder, model, mesh))


def held_out(workdir: pathlib.Path) -> tuple[list[Problem], str]:
    """The problems that a run evaluates itself on, and the template of its prompts.

    Both are read as data; what the run's config names is neither imported nor called.

    Raises:
      ValueError: the folder is no run's, or the run holds none out.
    """
    path = workdir / HELD_OUT
    if not path.is_file():
        raise ValueError(f"{workdir}: no run that holds problems out ({path.name})")
    config = workdir / "config.json"
    try:
        template = json.loads(config.read_text("utf-8"))["data"]["template"]
        check_template(template)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{config}: data.template: {error}") from None
    return read_problems(path), template
