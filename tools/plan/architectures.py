"""Shapes of the models that configs name by hub id, so that a plan downloads nothing.

Source: the config.json of each on huggingface.co/Qwen.
"""

import pathlib
import tempfile

from configs.schema import take
from models.config import Qwen2Config
from rl.plan import find_model

# Layers, width, heads, kv heads, MLP, vocabulary, tied.
_SIZES = {
    "0.5B": (24, 896, 14, 2, 4864, 151936, True),
    "1.5B": (28, 1536, 12, 2, 8960, 151936, True),
    "3B": (36, 2048, 16, 2, 11008, 151936, True),
    "7B": (28, 3584, 28, 4, 18944, 152064, False),
    "14B": (48, 5120, 40, 8, 13824, 152064, False),
    "32B": (64, 5120, 40, 8, 27648, 152064, False),
    "72B": (80, 8192, 64, 8, 29568, 152064, False),
}


def _hf_config(size: str, *, math: bool) -> dict:
    layers, hidden, heads, kv_heads, mlp, vocab, tied = _SIZES[size]
    return {
        "model_type": "qwen2",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096 if math else 32768,
        "rope_theta": 1e4 if math else 1e6,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": tied,
    }


KNOWN = {
    f"Qwen/Qwen2.5-{kind}{size}{tuned}": _hf_config(size, math=bool(kind))
    for kind, sizes in (("", _SIZES), ("Math-", ("1.5B", "7B", "72B")))
    for size in sizes
    for tuned in ("", "-Instruct")
}


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
