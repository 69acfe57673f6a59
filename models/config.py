"""The architecture of a model, read from a Hugging Face `config.json`.

Qwen2.5, Qwen3 and Llama have one decoder: Qwen2's, without its biases and, in Qwen3,
with a norm of each query and key, in Llama 3 with slower rotary frequencies.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

# By `model_type`: the class of transformers, and how its decoder differs from Qwen2's.
FAMILIES: Mapping[str, tuple[str, Mapping[str, bool]]] = {
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {"qkv_bias": False, "qk_norm": True}),
    "llama": ("LlamaForCausalLM", {"qkv_bias": False}),
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
class Qwen2Config:
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

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json"):
        """Reads a Hugging Face config; refuses by name and value what is not built.

        Raises:
          ValueError: another architecture, another rope scaling than Llama 3's, a
            sliding window in use, another activation, other biases than the family's,
            or a missing or ill-fitting size.
        """

        def refuse(key, value, only):
            raise ValueError(f"{where}: {key}={value!r} is not supported, only {only}")

        model_type = raw.get("model_type")
        if model_type not in FAMILIES:
            refuse("model_type", model_type, ", ".join(map(repr, FAMILIES)))
        architecture, family = FAMILIES[model_type]
        architectures = raw.get("architectures") or [architecture]
        if list(architectures) != [architecture]:
            refuse("architectures", architectures, [architecture])
        if raw.get("hidden_act", "silu") != "silu":
            refuse("hidden_act", raw["hidden_act"], "'silu'")
        for key in ("use_sliding_window", "attention_bias", "mlp_bias"):
            if raw.get(key):
                refuse(key, raw[key], "false")
        for layer_type in raw.get("layer_types") or ():
            if layer_type != "full_attention":
                refuse("layer_types", layer_type, "'full_attention'")
        # transformers 5 writes `rope_parameters`, with the base among them.
        key = "rope_parameters" if raw.get("rope_parameters") else "rope_scaling"
        rope = raw.get(key) or {}
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        if rope_type not in ("default", "llama3"):
            refuse(f"{key}.rope_type", rope_type, "'default', 'llama3'")
        theta = rope.get("rope_theta", raw.get("rope_theta"))

        def size(key):
            value = raw.get(key)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{where}: {key}={value!r} must be a positive integer")
            return value

        hidden, heads = size("hidden_size"), size("num_attention_heads")
        kv_heads = raw.get("num_key_value_heads") or heads
        if heads % kv_heads:
            raise ValueError(
                f"{where}: num_attention_heads={heads} is no multiple of"
                f" num_key_value_heads={kv_heads}"
            )
        head_dim = raw.get("head_dim") or hidden // heads
        if not raw.get("head_dim") and hidden % heads:
            raise ValueError(
                f"{where}: hidden_size={hidden} is no multiple of"
                f" num_attention_heads={heads}"
            )
        if theta is None:
            raise ValueError(f"{where}: rope_theta is missing")

        def scaling(name):
            value = rope.get(name)
            if not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{where}: {key}.{name}={value!r} must be positive")
            return value

        return cls(
            vocab_size=size("vocab_size"),
            hidden_size=hidden,
            intermediate_size=size("intermediate_size"),
            num_layers=size("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            rope_theta=float(theta),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            max_positions=size("max_position_embeddings"),
            rope_scaling=None
            if rope_type == "default"
            else RopeScaling(
                factor=scaling("factor"),
                low_freq_factor=scaling("low_freq_factor"),
                high_freq_factor=scaling("high_freq_factor"),
                original_max_positions=scaling("original_max_position_embeddings"),
            ),
            **family,
        )

    @classmethod
    def from_folder(cls, folder: str | pathlib.Path):
        """Reads `folder/config.json`; see `from_hf` for the errors."""
        path = pathlib.Path(folder) / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file; not a model folder") from None
        except ValueError as error:
            raise ValueError(f"{path}: not valid JSON: {error}") from None
        return cls.from_hf(raw, where=str(path))
