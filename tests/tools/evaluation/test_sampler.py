"""A folder that is asked is laid out for the answers that it will give."""

import pytest

from models.config import DecoderConfig
from tests.models import reference
from tools.evaluation import sampler
from tools.evaluation.pretrained import Pretrained

MEGABYTE = 2**20


@pytest.mark.parametrize("context,devices", [(64, 1), (4096, 2)])
def test_a_copy_is_split_where_its_cache_would_not_fit(
    tmp_path, monkeypatch, context, devices
):
    """Weights take 17 MB, a slot of 4,096 tokens 4 MB, and of 21 MB 19 may be used."""
    sizes = dict(vocab_size=32768, intermediate_size=256, num_hidden_layers=4)
    long = dict(max_position_embeddings=4096, tie_word_embeddings=False)
    reference.make(tmp_path, **sizes, **long)
    monkeypatch.setattr(sampler, "device_memory", lambda mesh: 21 * MEGABYTE)
    config = DecoderConfig.from_folder(tmp_path)
    text = dict(tokenizer=None, stop_token_ids=())
    model = Pretrained(folder=tmp_path, dtype="float32", config=config, **text)
    opened = sampler.open_jax_sampler(model, slots=8, context=context)
    assert opened._layout.tensor == devices
    assert opened._layout.response_length == 0
