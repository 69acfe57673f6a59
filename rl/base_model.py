"""The model that a run begins from: found or made, built, counted."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from configs.base import RunConfig
from configs.schema import Count, call
from models import hf, lora
from models.attention import SHARES_PREFIXES, default_implementation
from models.config import DecoderConfig
from models.decoder import (
    Decoder,
    Params,
    Remat,
    abstract_params,
    param_shardings,
)
from models.hub import resolve_folder
from rl.problems.functions import load_function

AttentionKey = Literal["auto", "xla", "triton", "splash"]


def find_model(
    *,
    path: str,
    maker: str,
    maker_args: Mapping[str, Any],
    described_in: pathlib.Path | None = None,
) -> pathlib.Path:
    """The base model's folder, made or downloaded if it is not there.

    Args:
      path, maker, maker_args: say which; see configs/base.py.
      described_in: where it is not there, an empty folder that gets only what says what
        the model is: its config and tokenizer. Nothing else is written.
    """
    if maker:
        make = load_function(maker, key="config.model.maker")
        return call(make, "model.maker_args", maker_args, described_in=described_in)
    try:
        return resolve_folder(path, described_in=described_in)
    except ValueError as error:
        raise ValueError(f"config.model.path={error}") from None


def make_model(
    architecture: DecoderConfig,
    mesh: Mesh | None,
    *,
    dtype: hf.DType,
    param_dtype: hf.DType,
    remat: Remat,
    unroll: Count,
    attention: AttentionKey,
    deterministic: bool = False,
) -> Decoder:
    """Builds the model in training; see configs/base.py for the keys."""
    if attention == "auto":
        attention = default_implementation(mesh, dtype)
    return Decoder(
        architecture,
        mesh=mesh,
        dtype=jnp.dtype(dtype),
        param_dtype=jnp.dtype(param_dtype),
        remat=remat,
        unroll=unroll,
        attention=attention,
        deterministic=deterministic,
    )


def check_shared_prompts(share_prompts: bool, model: Decoder) -> None:
    """Refuses shared prompts where the model's attention does not know them."""
    if share_prompts and model.attention not in SHARES_PREFIXES:
        raise ValueError(
            f"config.batch.share_prompts=True: attention {model.attention!r} cannot"
            " share prompts; set it to False, or config.model.attention='xla'"
        )


def model_from_config(
    c: RunConfig, architecture: DecoderConfig, mesh: Mesh | None
) -> Decoder:
    """Build the model in training as a config says.

    With adapters the base has the dtype of computation; only they are masters.
    """
    sizes = lora_from_config(c)
    return make_model(
        dataclasses.replace(architecture, lora=sizes),
        mesh,
        dtype=c.model.dtype,
        param_dtype=c.model.dtype if sizes else c.model.param_dtype,
        remat=c.model.remat,
        unroll=c.model.unroll,
        attention=c.model.attention,
        deterministic=c.deterministic,
    )


def lora_from_config(c: RunConfig) -> lora.Lora | None:
    """Return the sizes of the adapters that a config trains, if any."""
    sizes = c.model.lora
    if not sizes.rank:
        return None
    return lora.Lora(rank=sizes.rank, alpha=sizes.alpha, targets=sizes.targets)


def new_adapters(model: Decoder, mesh: Mesh, seed: int) -> Params:
    """Make the adapters that training starts with; `{}` if the model has none."""
    shapes, _ = abstract_params(model)
    return lora.init_adapters(shapes, param_shardings(model, mesh), seed)


def base_name(c: RunConfig, folder: pathlib.Path) -> str:
    """Return what checkpoints and exports of adapters call their base."""
    local = c.model.maker or pathlib.Path(c.model.path).expanduser().is_dir()
    return str(folder.absolute()) if local else c.model.path


def base_folder(
    c: RunConfig, *, described_in: pathlib.Path | None = None
) -> pathlib.Path:
    """Return the base model's folder, made or downloaded first; see `find_model`."""
    return find_model(
        path=c.model.path,
        maker=c.model.maker,
        maker_args=c.model.maker_args,
        described_in=described_in,
    )


def parameter_count(model: DecoderConfig) -> int:
    shapes, _ = abstract_params(Decoder(model))
    return sum(x.size for x in jax.tree.leaves(shapes))
