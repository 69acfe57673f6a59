"""The architecture of a Qwen2.5 model, read from a Hugging Face `config.json`."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2Config:
    """Sizes of a Qwen2 decoder.

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

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json"):
        """Reads a Hugging Face config; refuses by name and value what is not built.

        Raises:
          ValueError: another architecture, rope scaling, a sliding window in use,
            another activation, or a missing or ill-fitting size.
        """

        def refuse(key, value, only):
            raise ValueError(f"{where}: {key}={value!r} is not supported, only {only}")

        if raw.get("model_type") != "qwen2":
            refuse("model_type", raw.get("model_type"), "'qwen2'")
        architectures = raw.get("architectures") or ["Qwen2ForCausalLM"]
        if list(architectures) != ["Qwen2ForCausalLM"]:
            refuse("architectures", architectures, "['Qwen2ForCausalLM']")
        if raw.get("hidden_act", "silu") != "silu":
            refuse("hidden_act", raw["hidden_act"], "'silu'")
        if raw.get("use_sliding_window"):
            refuse("use_sliding_window", raw["use_sliding_window"], "false")
        for layer_type in raw.get("layer_types") or ():
            if layer_type != "full_attention":
                refuse("layer_types", layer_type, "'full_attention'")
        if raw.get("rope_scaling"):
            refuse("rope_scaling", raw["rope_scaling"], "null")
        # transformers 5 writes the base inside `rope_parameters`.
        rope = raw.get("rope_parameters") or {}
        if rope.get("rope_type", "default") != "default":
            refuse("rope_parameters.rope_type", rope["rope_type"], "'default'")
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
