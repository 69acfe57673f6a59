"""Finds, downloads or makes the base model's folder, and builds decoders."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from configs.base import RunConfig
from configs.schema import call
from models import lora
from models.attention import default_implementation
from models.config import DecoderConfig
from models.decoder import Decoder, abstract_params
from models.hub import resolve_folder
from rl.errors import user_code
from rl.problems.functions import load_function


def base_folder(
    c: RunConfig, *, described_in: pathlib.Path | None = None
) -> pathlib.Path:
    """Returns the base model's folder; makes or downloads the model if it is missing.

    `described_in` is an empty folder. If it is given and the model is missing, writes
    only the config and the tokenizer to it, and returns it.
    """
    m = c.model
    if m.maker:
        key = "config.model.maker"
        make = user_code(f"{key}={m.maker!r}")(load_function(m.maker, key=key))
        return call(make, "model.maker_args", m.maker_args, described_in=described_in)
    return model_folder("config.model.path", m.path, described_in=described_in)


def model_folder(
    key: str, model: str, *, described_in: pathlib.Path | None = None
) -> pathlib.Path:
    """Returns `models.hub.resolve_folder`; errors name the config key of the model."""
    try:
        return resolve_folder(model, described_in=described_in)
    except ValueError as error:
        raise ValueError(f"{key}={error}") from None


def model_from_config(
    c: RunConfig, architecture: DecoderConfig, mesh: Mesh | None
) -> Decoder:
    """Builds a decoder with this architecture and the settings of the config."""
    m, sizes = c.model, None
    if (own := m.lora).rank:
        sizes = lora.Lora(rank=own.rank, alpha=own.alpha, targets=own.targets)
    return Decoder(
        dataclasses.replace(architecture, lora=sizes),
        mesh=mesh,
        dtype=jnp.dtype(m.dtype),
        # With adapters the frozen base needs no float32 master weights.
        param_dtype=jnp.dtype(m.dtype if sizes else m.param_dtype),
        remat=m.remat,
        attention=default_implementation(mesh, m.dtype)
        if m.attention == "auto"
        else m.attention,
        deterministic=c.deterministic,
    )


def base_name(c: RunConfig, folder: pathlib.Path) -> str:
    """Returns the base's path or Hub id, for checkpoints and exports of adapters."""
    local = c.model.maker or pathlib.Path(c.model.path).expanduser().is_dir()
    return str(folder.absolute()) if local else c.model.path


def parameter_count(model: DecoderConfig) -> int:
    """Counts the parameters of a model, including its adapters if it has any."""
    shapes, _ = abstract_params(Decoder(model))
    return sum(x.size for x in jax.tree.leaves(shapes))
