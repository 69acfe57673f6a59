"""Reads the architecture of a model from a Hugging Face `config.json`.

Qwen2.5, Qwen3 and Llama share one decoder. Qwen3 and Llama have no biases. Qwen3
normalizes each query and key. Llama 3.1 to 3.3 scale the rotary frequencies.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from models.lora import Lora
from models.safetensors_io import refuse_pointer

# By `model_type`: the class name in transformers, its default for
# `max_position_embeddings`, and the differences from Qwen2.
FAMILIES: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "qwen2": ("Qwen2ForCausalLM", 32768, {}),
    "qwen3": ("Qwen3ForCausalLM", 32768, {"qkv_bias": False, "qk_norm": True}),
    "llama": ("LlamaForCausalLM", 2048, {"qkv_bias": False}),
}
# The only supported values of optional keys of config.json.
_ASSUMED: Mapping[str, Any] = {
    "hidden_act": "silu",
    "use_sliding_window": False,
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Scales low rotary frequencies as in Llama 3.1 (arXiv 2407.21783).

    Frequencies with fewer than `low_freq_factor` periods in `original_max_positions`
    tokens are divided by `factor`. Those with more than `high_freq_factor` periods are
    not scaled. Between the two numbers the scaling is interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Holds the architecture of a Qwen2.5, Qwen3 or Llama decoder."""

    vocab_size: int  # V, rows of the embedding, with padding
    hidden_size: int  # D, model width
    intermediate_size: int  # F, MLP width
    num_layers: int  # L
    num_heads: int  # N, number of query heads
    num_kv_heads: int  # K, number of key and value heads; divides N
    head_dim: int  # H, width of one head
    rope_theta: float  # base of the rotary frequencies
    rms_norm_eps: float  # inside the square root of the norms
    tie_word_embeddings: bool  # whether the head is the embedding table
    max_positions: int  # maximum context length: prompt plus completion
    qkv_bias: bool = True  # whether q, k and v projections have biases
    qk_norm: bool = False  # whether heads of q and k are normalized before rotation
    rope_scaling: RopeScaling | None = None
    lora: Lora | None = None  # sizes of the adapters in training

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json"):
        """Returns the architecture that the content `raw` of a config.json describes.

        Raises ValueError if it is not supported; `where` names the file in messages.
        """
        fields = JsonFields(raw, where)
        model_type = fields.one_of("model_type", list(FAMILIES))
        architecture, positions, family = FAMILIES[model_type]
        # Llama 1 has "LLaMA" in its class name. A decoder without a head is a "Model".
        known = [architecture, architecture.replace("ForCausalLM", "Model")]
        for name in raw.get("architectures") or ():
            if str(name).lower() not in map(str.lower, known):
                fields.refuse("architectures", name, " or ".join(known))
        for key, value in _ASSUMED.items():
            if raw.get(key):
                fields.one_of(key, [value])
        if quantized := raw.get("quantization_config"):
            only = "unquantized weights; use the unquantized model"
            fields.refuse("quantization_config", quantized, only)
        for layer_type in raw.get("layer_types") or ():
            if layer_type != "full_attention":
                fields.refuse("layer_types", layer_type, "'full_attention'")
        theta, scaling = _rope(fields)
        hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
        kv_heads = fields.size("num_key_value_heads", heads)
        if heads % kv_heads:
            only = f"divisors of num_attention_heads={heads}"
            fields.refuse("num_key_value_heads", kv_heads, only)
        if not raw.get("head_dim") and hidden % heads:
            only = f"divisors of hidden_size={hidden} if head_dim is not set"
            fields.refuse("num_attention_heads", heads, only)
        head_dim = fields.size("head_dim", hidden // heads)
        if head_dim % 2:
            fields.refuse("head_dim", head_dim, "even values")
        tied = fields.one_of("tie_word_embeddings", (None, False, True))
        return cls(
            vocab_size=fields.size("vocab_size"),
            hidden_size=hidden,
            intermediate_size=fields.size("intermediate_size"),
            num_layers=fields.size("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            rope_theta=theta,
            rms_norm_eps=fields.positive("rms_norm_eps", raw.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(tied),
            max_positions=fields.size("max_position_embeddings", positions),
            rope_scaling=scaling,
            **family,
        )

    @classmethod
    def from_folder(cls, folder: str | pathlib.Path):
        """Reads the config.json of a model folder.

        Raises ValueError if the file is missing, damaged or not supported.
        """
        folder = pathlib.Path(folder)
        path = folder / "config.json"
        if (folder / "adapter_config.json").is_file() and not path.is_file():
            raise ValueError(
                f"{folder}: contains LoRA adapters, not a model; merge them with"
                f" python -m tools.convert --peft {folder} --out MERGED"
            )
        if (folder / "snapshots").is_dir() and not path.is_file():
            raise ValueError(
                f"{folder}: is a folder of the Hub's cache, not a model; use the Hub"
                f" id, or a folder in {folder / 'snapshots'}"
            )
        if (folder / "checkpoints").is_dir() and (folder / "hf").is_dir():
            raise ValueError(
                f"{folder}: is the folder of a run, not a model; use {folder / 'hf'}"
            )
        if folder.parent.name == "checkpoints" and (folder / "checksums").is_dir():
            raise ValueError(
                f"{folder}: is a checkpoint, not a model; convert it with python -m"
                f" tools.convert --workdir {folder.parent.parent} --step {folder.name}"
                " --out MODEL"
            )
        return cls.from_hf(read_json(path, "model"), where=str(path))


def read_json(path: pathlib.Path, kind: str) -> dict[str, Any]:
    """Reads a JSON object; raises ValueError if the file is missing or damaged.

    `kind` is the kind of folder in error messages, such as "model".
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{path}: no such file; a {kind} folder must contain it: convert another"
            " format, such as Meta's consolidated.*.pth, to Hugging Face format, or"
            " rename this local folder to use the Hub's model of its name"
        ) from None
    except ValueError as error:
        refuse_pointer(path, path.read_bytes())
        raise ValueError(
            f"{path}: not valid JSON: {error}; correct or replace the file"
        ) from None
    if not isinstance(raw, dict):
        raise ValueError(
            f"{path}: must contain a JSON object, not {type(raw).__name__}; replace"
            " the file"
        )
    return raw


@dataclasses.dataclass(frozen=True, slots=True)
class JsonFields:
    """Reads fields of `raw`, the content of the JSON file `where`.

    Raises ValueError for invalid values.
    """

    raw: Mapping[str, Any]
    where: str

    def refuse(self, key: str, value: Any, only: str) -> NoReturn:
        raise ValueError(f"{self.where}: {key}={value!r} is not supported, only {only}")

    def one_of(self, key: str, values: Collection[Any]) -> Any:
        value = self.raw.get(key)
        if value not in values:
            self.refuse(key, value, ", ".join(map(repr, values)))
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.raw.get(key)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise ValueError(
                f"{self.where}: {key}={value!r} must be a positive integer"
            )
        return value

    def positive(self, key: str, value: Any) -> float:
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise ValueError(f"{self.where}: {key}={value!r} must be a number above 0")
        return float(value)


def _rope(fields: JsonFields) -> tuple[float, RopeScaling | None]:
    """Reads the base and the scaling of the rotary frequencies from a config.json.

    transformers 5 writes both to `rope_parameters`. It still reads `rope_scaling`,
    which some model cards ask users to add.
    """
    raw = fields.raw
    theta, rope, scaling = raw.get("rope_theta"), None, None
    for key in ("rope_scaling", "rope_parameters"):
        if not raw.get(key):
            continue
        values = raw[key].values() if isinstance(raw[key], Mapping) else [{}]
        if any(isinstance(value, Mapping) for value in values):  # for some layers
            fields.refuse(key, raw[key], "a JSON object without other objects in it")
        if rope is not None and rope != raw[key]:
            fields.refuse(key, raw[key], f"a copy of rope_scaling, {rope!r}")
        rope = raw[key]
        theta = rope.get("rope_theta", theta)
        if (partial := rope.get("partial_rotary_factor") or 1) != 1:
            fields.refuse(f"{key}.partial_rotary_factor", partial, "1")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind == "llama3":
            scaling = _scaling(fields, key)
        elif kind != "default":
            only = "'default' or 'llama3'; set 'default' to have no context extension"
            fields.refuse(f"{key}.rope_type", kind, only)
    # Llama 1 and 2 lack the key; 10,000 is the default of transformers.
    return fields.positive("rope_theta", 10000.0 if theta is None else theta), scaling


def _scaling(fields: JsonFields, key: str) -> RopeScaling:
    def number(name):
        return fields.positive(f"{key}.{name}", fields.raw[key].get(name))

    low, high = number("low_freq_factor"), number("high_freq_factor")
    if low >= high:
        only = f"values below high_freq_factor={high}"
        fields.refuse(f"{key}.low_freq_factor", low, only)
    return RopeScaling(
        factor=number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=int(number("original_max_position_embeddings")),
    )
