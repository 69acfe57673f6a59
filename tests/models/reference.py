"""Random folders of Qwen2 and its relatives made by transformers, to compare with."""

import pathlib

import torch
import transformers

from models.config import DecoderConfig
from models.decoder import Decoder
from models.hf import load_params
from tests.meshes import mesh_of

SMALL = dict(
    vocab_size=96, hidden_size=64, intermediate_size=112, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    rope_theta=10000.0, tie_word_embeddings=True, use_sliding_window=False,
)  # fmt: skip

LLAMA_3 = dict(
    rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
    high_freq_factor=4.0, original_max_position_embeddings=64,
)  # fmt: skip
# Heads whose widths do not add up to the width, as of Qwen3-4B and most of its family.
FAMILIES = {
    "Qwen2": {},
    "Qwen3": dict(head_dim=32, sliding_window=None),
    "Llama": dict(rope_parameters=LLAMA_3),
}


def make(
    folder: pathlib.Path, family="Qwen2", *, max_shard_size="5GB", seed=0, **changes
):
    """Saves a random float32 model and returns it; biases and norms are random too."""
    torch.manual_seed(seed)
    sizes = {**SMALL, **FAMILIES[family], **changes}
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # The initial scale of 0.02 hides errors of position; this does not.
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def config_of(**changes) -> DecoderConfig:
    """Returns the config of a small Qwen2 with these fields of its config.json."""
    return DecoderConfig.from_hf({"model_type": "qwen2", **SMALL, **changes})


def load(folder: pathlib.Path, shape=(1, 1, 1), **options):
    """Returns our model of a folder, and its parameters on a mesh of this shape."""
    model = Decoder(DecoderConfig.from_folder(folder), **options)
    return model, load_params(folder, model, mesh_of(*shape))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
