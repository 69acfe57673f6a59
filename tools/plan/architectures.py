"""Lists the architectures of models, so that plans for them need no download."""

import pathlib
import tempfile
from typing import Any

from configs.base import RunConfig
from models.config import DecoderConfig
from rl.base_model import base_folder

_NAMES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "vocab_size", "tie_word_embeddings", "max_position_embeddings",
)  # fmt: skip
# The models of configs/, from their config.json on huggingface.co/Qwen.
_MODELS = {
    "Qwen2.5-0.5B": (24, 896, 14, 2, 4864, 151936, True, 32768),
    "Qwen2.5-7B": (28, 3584, 28, 4, 18944, 152064, False, 131072),
    "Qwen2.5-14B": (48, 5120, 40, 8, 13824, 152064, False, 131072),
    "Qwen2.5-Math-1.5B": (28, 1536, 12, 2, 8960, 151936, True, 4096),
    "Qwen2.5-Math-7B": (28, 3584, 28, 4, 18944, 152064, False, 4096),
    "Qwen2.5-Math-72B": (80, 8192, 64, 8, 29568, 152064, False, 4096),
    "Qwen3-8B-Base": (36, 4096, 32, 8, 12288, 151936, False, 32768),
}


def architecture(config: RunConfig) -> DecoderConfig:
    """Returns the architecture of the base model.

    Reads or downloads the model's config if it is not in `_MODELS`.

    Raises:
      ValueError: the files cannot be downloaded or read.
    """
    path = config.model.path
    name = path.removeprefix("Qwen/")
    if path != name and name in _MODELS and not pathlib.Path(path).is_dir():
        raw: dict[str, Any] = dict(zip(_NAMES, _MODELS[name], strict=True))
        rope = 1e4 if "Math" in name else 1e6
        raw |= {"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": rope}
        if name.startswith("Qwen3"):
            raw |= {"model_type": "qwen3", "head_dim": 128}
        return DecoderConfig.from_hf(raw)
    with tempfile.TemporaryDirectory() as scratch:
        folder = base_folder(config, described_in=pathlib.Path(scratch))
        return DecoderConfig.from_folder(folder)
