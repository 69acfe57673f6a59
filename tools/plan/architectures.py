"""Shapes of the models that configs name by hub id, so that a plan downloads nothing.

Source: the config.json of each on huggingface.co, under Qwen and meta-llama.
"""

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from configs.schema import take
from models.config import Qwen2Config
from rl.base_model import find_model

# Layers, width, heads, kv heads, MLP, vocabulary, tied.
_QWEN2 = {
    "0.5B": (24, 896, 14, 2, 4864, 151936, True),
    "1.5B": (28, 1536, 12, 2, 8960, 151936, True),
    "3B": (36, 2048, 16, 2, 11008, 151936, True),
    "7B": (28, 3584, 28, 4, 18944, 152064, False),
    "14B": (48, 5120, 40, 8, 13824, 152064, False),
    "32B": (64, 5120, 40, 8, 27648, 152064, False),
    "72B": (80, 8192, 64, 8, 29568, 152064, False),
}
_MATH = {size: _QWEN2[size] for size in ("1.5B", "7B", "72B")}
_QWEN3 = {
    "0.6B": (28, 1024, 16, 8, 3072, 151936, True),
    "1.7B": (28, 2048, 16, 8, 6144, 151936, True),
    "4B": (36, 2560, 32, 8, 9728, 151936, True),
    "8B": (36, 4096, 32, 8, 12288, 151936, False),
    "14B": (40, 5120, 40, 8, 17408, 151936, False),
    "32B": (64, 5120, 64, 8, 25600, 151936, False),
}
_LLAMA = {
    "3.1-8B": (32, 4096, 32, 8, 14336, 128256, False),
    "3.2-1B": (16, 2048, 32, 8, 8192, 128256, True),
    "3.2-3B": (28, 3072, 24, 8, 8192, 128256, True),
}


def _known(
    name: str, sizes: Mapping[str, tuple], of_size=lambda size: {}, **common
) -> dict[str, dict[str, Any]]:
    """Hub id to config, `{}` of the name standing for the size."""
    found = {}
    for size, (layers, width, heads, kv_heads, mlp, vocabulary, tied) in sizes.items():
        raw = common | {
            "vocab_size": vocabulary,
            "hidden_size": width,
            "intermediate_size": mlp,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "tie_word_embeddings": tied,
        }
        found[name.format(size)] = raw | of_size(size)
    return found


def _qwen2_5(size: str) -> dict[str, Any]:
    short = size in ("0.5B", "1.5B", "3B")
    return {"max_position_embeddings": 32768 if short else 131072}


def _llama(size: str) -> dict[str, Any]:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0 if size.startswith("3.1") else 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    return {"rope_parameters": rope}


_OF_QWEN2 = {"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1e6}
_OF_MATH = _OF_QWEN2 | {"rope_theta": 1e4, "max_position_embeddings": 4096}
_OF_QWEN3 = _OF_QWEN2 | {"model_type": "qwen3", "head_dim": 128}
_OF_LLAMA = {
    "model_type": "llama",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
}
_BASES = {size: _QWEN3[size] for size in _QWEN3 if size != "32B"}
KNOWN = (
    _known("Qwen/Qwen2.5-{}", _QWEN2, _qwen2_5, **_OF_QWEN2)
    | _known(
        "Qwen/Qwen2.5-{}-Instruct", _QWEN2, max_position_embeddings=32768, **_OF_QWEN2
    )
    | _known("Qwen/Qwen2.5-Math-{}", _MATH, **_OF_MATH)
    | _known("Qwen/Qwen2.5-Math-{}-Instruct", _MATH, **_OF_MATH)
    | _known("Qwen/Qwen3-{}", _QWEN3, max_position_embeddings=40960, **_OF_QWEN3)
    | _known("Qwen/Qwen3-{}-Base", _BASES, max_position_embeddings=32768, **_OF_QWEN3)
    | _known("meta-llama/Llama-{}", _LLAMA, _llama, **_OF_LLAMA)
    | _known("meta-llama/Llama-{}-Instruct", _LLAMA, _llama, **_OF_LLAMA)
)


def architecture(config) -> Qwen2Config:
    """Of the config's base model: known, or read from its folder or the hub.

    Raises:
      ValueError: one line that names the key.
    """
    if config.model.path in KNOWN and not pathlib.Path(config.model.path).is_dir():
        return Qwen2Config.from_hf(KNOWN[config.model.path])
    with tempfile.TemporaryDirectory() as scratch:
        folder = take(find_model, config.model)(described_in=pathlib.Path(scratch))
        return Qwen2Config.from_folder(folder)
