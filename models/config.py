"""The architecture of a model, read from a Hugging Face `config.json`.

Qwen2.5, Qwen3 and Llama have one decoder: Qwen2's, without its biases and, in Qwen3,
with a norm of each query and key, in Llama 3 with slower rotary frequencies.
"""

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from models.lora import Lora

# By `model_type`: the class of transformers, and how its decoder differs from Qwen2's.
FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {"qkv_bias": False, "qk_norm": True}),
    "llama": ("LlamaForCausalLM", {"qkv_bias": False}),
}
# What transformers takes where a config.json has no such key; Llama 1 and 2 have none.
_DEFAULT_THETA = 10000.0
_DEFAULT_POSITIONS = {"llama": 2048, "qwen2": 32768, "qwen3": 32768}

# What the decoder takes for granted where a config names it at all.
_ASSUMED: Mapping[str, Any] = {
    "hidden_act": "silu",
    "use_sliding_window": False,
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1,
    "quantization_config": None,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How Llama 3.1 and later stretch the rotary embedding's longer waves.

    Attributes:
      factor: of waves that fill the original context less than `low_freq_factor` times.
      low_freq_factor, high_freq_factor: waves that fill it more often than the second
        stay as they are; between the two the frequency is interpolated.
      original_max_positions: the context that the model was first trained on.

    Source: "The Llama 3 Herd of Models" (arXiv 2407.21783), and `llama3` among the rope
    functions of transformers.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Sizes of a Qwen2 decoder, or of a relative's.

    Attributes:
      vocab_size: V, rows of the embedding (padded: 151,936 or 152,064).
      hidden_size: D, model width.
      intermediate_size: F, MLP width.
      num_layers: L.
      num_heads: N, query heads.
      num_kv_heads: K, key and value heads; divides N.
      head_dim: H.
      rope_theta: base of the rotary frequencies.
      rms_norm_eps: epsilon inside the norms' square root.
      tie_word_embeddings: the head is the embedding table.
      max_positions: most positions (prompt plus completion) that the model was made
        for.
      qkv_bias: queries, keys and values have biases.
      qk_norm: queries and keys are normed, a head at a time, before their rotation.
      rope_scaling: None leaves the rotary frequencies as `rope_theta` gives them.
      lora: sizes of adapters in training; None: there are none.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    max_positions: int
    qkv_bias: bool = True
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    lora: Lora | None = None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json"):
        """Read a Hugging Face config; refuse by name and value what is not built.

        Raises:
          ValueError: another architecture, another rope scaling than Llama 3's, a
            sliding window in use, another activation, other biases than the family's,
            quantised weights, or a missing or ill-fitting size.
        """
        fields = JsonFields(raw, where)
        model_type = fields.one_of("model_type", FAMILIES)
        architecture, family = FAMILIES[model_type]
        # Llama 1 was written as LLaMA; a folder may hold the decoder without its head.
        known = [architecture, architecture.replace("ForCausalLM", "Model")]
        for name in raw.get("architectures") or ():
            if str(name).lower() not in map(str.lower, known):
                fields.refuse("architectures", name, architecture)
        for key, value in _ASSUMED.items():
            if raw.get(key):
                fields.one_of(key, [value])
        for layer_type in raw.get("layer_types") or ():
            if layer_type != "full_attention":
                fields.refuse("layer_types", layer_type, "'full_attention'")
        theta, scaling = _rope(fields)
        hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
        kv_heads = fields.size("num_key_value_heads", heads)
        if heads % kv_heads:
            raise ValueError(
                f"{where}: num_attention_heads={heads} is not a multiple of"
                f" num_key_value_heads={kv_heads}"
            )
        if not raw.get("head_dim") and hidden % heads:
            raise ValueError(
                f"{where}: hidden_size={hidden} is not a multiple of"
                f" num_attention_heads={heads}"
            )
        head_dim = fields.size("head_dim", hidden // heads)
        if head_dim % 2:
            fields.refuse("head_dim", head_dim, "an even one: rotations take pairs")
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
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            max_positions=fields.size(
                "max_position_embeddings", _DEFAULT_POSITIONS[model_type]
            ),
            rope_scaling=scaling,
            **family,
        )

    @classmethod
    def from_folder(cls, folder: str | pathlib.Path):
        """Read `folder/config.json`; see `from_hf` for the errors."""
        folder = pathlib.Path(folder)
        path = folder / "config.json"
        if (folder / "adapter_config.json").is_file() and not path.is_file():
            raise ValueError(
                f"{folder}: LoRA adapters and not a model; make one with"
                f" python -m tools.convert --peft {folder} --out MERGED"
            )
        if (folder / "checkpoints").is_dir() and (folder / "hf").is_dir():
            raise ValueError(f"{folder}: a run's folder; its model is {folder / 'hf'}")
        return cls.from_hf(read_json(path, "model"), where=str(path))


def read_json(path: pathlib.Path, kind: str) -> dict[str, Any]:
    """Read the object in a file that every folder of that kind has.

    Raises:
      ValueError: it is missing or damaged; names the file.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; not a {kind} folder") from None
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: must hold an object, not {type(raw).__name__}")
    return raw


@dataclasses.dataclass(frozen=True, slots=True)
class JsonFields:
    """Reads an object's fields; `where` names its file in the errors."""

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
        if type(value) not in (int, float) or value <= 0:
            raise ValueError(f"{self.where}: {key}={value!r} must be positive")
        return float(value)


def _rope(fields: JsonFields) -> tuple[float, RopeScaling | None]:
    """Return the rotary base, and how the longer waves are stretched.

    transformers 5 writes `rope_parameters`, with the base among them, and still obeys
    a `rope_scaling`, which some model cards ask their readers to add.
    """
    raw = fields.raw
    there = [key for key in ("rope_scaling", "rope_parameters") if raw.get(key)]
    for key in there:
        if not isinstance(raw[key], Mapping):
            fields.refuse(key, raw[key], "an object")
        kind = raw[key].get("rope_type", raw[key].get("type", "default"))
        if kind not in ("default", "llama3"):
            only = "'default', 'llama3'; without it the model has the positions that"
            fields.refuse(f"{key}.rope_type", kind, f"{only} it was pretrained with")
    key = there[0] if there else "rope_scaling"
    rope = raw.get(key) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if len(there) == 2 and rope != raw[there[1]]:
        fields.refuse(key, rope, f"what {there[1]} says too: {raw[there[1]]!r}")
    if (partial := rope.get("partial_rotary_factor") or 1) != 1:
        fields.refuse(f"{key}.partial_rotary_factor", partial, "1")
    theta = rope.get("rope_theta", raw.get("rope_theta"))
    theta = fields.positive("rope_theta", _DEFAULT_THETA if theta is None else theta)
    if kind == "default":
        return theta, None

    def number(name):
        return fields.positive(f"{key}.{name}", rope.get(name))

    factor = number("factor")
    low, high = number("low_freq_factor"), number("high_freq_factor")
    if low >= high:
        fields.refuse(f"{key}.low_freq_factor", low, f"below high_freq_factor={high}")
    return theta, RopeScaling(
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=int(number("original_max_position_embeddings")),
    )
