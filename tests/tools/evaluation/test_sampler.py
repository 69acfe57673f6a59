"""A folder that is asked is laid out for the answers that it will give."""

import pytest
import transformers

from models.config import DecoderConfig
from tools.evaluation import sampler
from tools.evaluation.pretrained import Pretrained

MEGABYTE = 2**20


@pytest.mark.parametrize("context,devices", [(64, 1), (4096, 2)])
def test_a_copy_is_split_where_its_cache_would_not_fit(
    tmp_path, monkeypatch, context, devices
):
    """Weights take 17 MB, a slot of 4,096 tokens 4 MB, and of 21 MB 19 may be used."""
    transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=32768, hidden_size=64, intermediate_size=256,
            num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=4096,
        )
    ).save_pretrained(tmp_path)  # fmt: skip
    monkeypatch.setattr(sampler, "device_memory", lambda mesh: 21 * MEGABYTE)
    model = Pretrained(
        folder=tmp_path,
        dtype="float32",
        tokenizer=None,
        config=DecoderConfig.from_folder(tmp_path),
        stop_token_ids=(),
    )
    opened = sampler.open_jax_sampler(model, slots=8, context=context)
    assert opened._layout.tensor == devices
    assert opened._layout.response_length == 0
