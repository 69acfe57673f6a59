"""Reads and writes PEFT folders: adapters without the base, for `peft` and vLLM.

adapter_config.json          sizes of the adapters, and the name of the base model
adapter_model.safetensors    lora_A [rank, in] and lora_B [out, rank] of each kernel
"""

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from models import lora
from models.config import DecoderConfig, JsonFields, read_json
from models.decoder import Decoder, Params
from models.hf import replaced_folder
from models.hub import split_id
from models.safetensors_io import read_tensors, write_tensors
from models.tensors import ADAPTERS, export_tensors, place_tensors, rows, tensor_specs

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Settings that change the output of an adapter, with their only supported values.
_SUPPORTED: Mapping[str, Any] = {
    "peft_type": "LORA",
    "bias": "none",
    "fan_in_fan_out": False,
    "use_dora": False,
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layers_to_transform": None,
    "layer_replication": None,
}
# More of them, which older versions of peft do not accept in a file.
_NEWER = dict.fromkeys(
    "alora_invocation_tokens arrow_config lora_bias target_parameters"
    " trainable_token_indices use_qalora".split()
)
# Initializations that change the base: PiSSA, OLoRA, LoftQ, CorDA and LoRA-GA.
_CHANGE_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")


def describe(config: DecoderConfig, *, base: str) -> str:
    """Returns the text of adapter_config.json for adapters of the model `base`."""
    assert config.lora is not None
    repository, revision = split_id(base)
    alpha = config.lora.alpha
    modules = {name.split(".")[-3] for name, _, _ in rows(config, ADAPTERS)}
    content = {
        **_SUPPORTED,
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": repository,
        "revision": revision,
        "r": config.lora.rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(modules),
        "inference_mode": True,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def save_folder(
    folder: str | os.PathLike, params: Params, config: DecoderConfig, *, base: str
) -> None:
    """Writes a PEFT folder, which gets its name only when it is complete.

    Replaces an existing folder. `base` is the name or path of the base model. With
    several processes, all must call this function, and the first one writes.
    """
    dtype = np.dtype(np.float32)
    stream = export_tensors(params, config, dtype, ADAPTERS)
    if jax.process_index():
        collections.deque(stream, maxlen=0)
        return
    with replaced_folder(pathlib.Path(folder)) as partial:
        (partial / CONFIG).write_text(describe(config, base=base), encoding="utf-8")
        specs = tensor_specs(config, dtype, ADAPTERS)
        write_tensors(partial / WEIGHTS, specs, stream)


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads adapter_config.json; raises ValueError if missing or not supported."""
    path = pathlib.Path(folder) / CONFIG
    content = read_json(path, "PEFT")
    fields = JsonFields(content, str(path))
    for key, value in (_NEWER | dict(_SUPPORTED)).items():
        # A missing key and an empty value both mean that the setting is unused.
        if (content.get(key) or None) != (value or None):
            only = f"{value!r}; merge these adapters with merge_and_unload of peft"
            fields.refuse(key, content.get(key), only)
    start = content.get("init_lora_weights")
    if str(start).startswith(_CHANGE_BASE):
        only = (
            "those that do not change the base; save the adapters with"
            " path_initial_model_for_weight_conversion of peft"
        )
        fields.refuse("init_lora_weights", start, only)
    fields.size("r")
    fields.positive("lora_alpha", content.get("lora_alpha"))
    return content


def base_of(content: Mapping[str, Any]) -> str:
    """Returns the base model in adapter_config.json, as OWNER/NAME@REVISION or path.

    Raises ValueError if the file does not name it.
    """
    key, revision = "base_model_name_or_path", content.get("revision")
    if not (name := content.get(key)):
        raise ValueError(f"{CONFIG}: {key}={name!r} is not a model; give --base")
    local = not revision or pathlib.Path(name).is_dir()
    return name if local else f"{name}@{revision}"


def load_adapters(
    folder: str | os.PathLike, model: Decoder
) -> tuple[DecoderConfig, Params]:
    """Returns the model's config with adapters, and the adapters of a PEFT folder.

    The config has adapters for all kernels; those that the folder lacks are zero. The
    adapters are sharded over the model's mesh.

    Raises:
      ValueError: `read_config` fails, the weights are damaged or cannot be sharded, or
        a tensor has a wrong shape or does not exist in the model.
      OSError: the weights cannot be read.
    """
    path, content = pathlib.Path(folder) / WEIGHTS, read_config(folder)
    sizes = lora.Lora(rank=content["r"], alpha=content["lora_alpha"], targets="all")
    config = dataclasses.replace(model.config, lora=sizes)
    model = model.clone(config=config)
    tensors = read_tensors(path) if path.is_file() else {}
    specs = tensor_specs(config, np.dtype(np.float32), ADAPTERS)
    names = content.get("target_modules")  # with a dot: only in some layers
    modules = names if isinstance(names, list) and "." not in "".join(names) else []
    absent = [n for n in specs if n.split(".")[-3] in modules and n not in tensors]
    if absent or not tensors:
        raise ValueError(
            f"{path}: {absent[0] if absent else 'each tensor'} is missing; save all"
            " adapters as safetensors, with save_pretrained of peft"
        )
    for name, array in tensors.items():
        shape, _ = specs.get(name, (None, None))
        if array.shape != shape:
            expected = f"must have shape {shape}" if shape else "must not exist"
            raise ValueError(
                f"{path}: tensor {name} has shape {array.shape}, but according to"
                f" {CONFIG} and the model it {expected}; use the adapters' own config"
                " and base model"
            )
    assert model.mesh is not None
    zeros = {n: np.zeros(*spec) for n, spec in specs.items() if n not in tensors}
    adapters = place_tensors(tensors | zeros, model, model.mesh, table=ADAPTERS)
    return config, adapters
