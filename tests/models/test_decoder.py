"""The port against transformers, and full sizes without their weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from models.cache import KVCache, Spans
from models.config import DecoderConfig
from models.decoder import Decoder, abstract_params, head_table, rotary
from models.inference import InferenceDecoder, served_params
from tests.meshes import mesh_of
from tests.models import reference

pytestmark = pytest.mark.usefixtures("quick_compilation")


def _logits_of(model):
    @jax.jit
    def logits(params, *inputs):
        return model.apply({"params": params}, *inputs) @ head_table(params).T

    return logits


def _torch_logits(theirs, token_ids):
    with torch.no_grad():
        return theirs(torch.tensor(np.asarray(token_ids))).logits.numpy()


CASES = [
    dict(tie_word_embeddings=True, num_hidden_layers=1, num_key_value_heads=4),
    dict(tie_word_embeddings=True, num_hidden_layers=2, num_key_value_heads=2),
    dict(tie_word_embeddings=False, num_hidden_layers=3, num_key_value_heads=1),
    dict(tie_word_embeddings=False, num_hidden_layers=4, rope_theta=1_000_000.0),
    dict(family="Qwen3", num_hidden_layers=3),
    dict(family="Llama", tie_word_embeddings=False),
]


@pytest.mark.parametrize(
    ("changes", "remat"), [(CASES[1], "full"), *((case, "none") for case in CASES)]
)
def test_logits_equal_transformers(tmp_path, changes, remat):
    theirs = reference.make(tmp_path, **changes)
    model, params = reference.load(tmp_path, remat=remat)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 96, (2, 23)), rng.integers(0, 96, (2, 41))
    expected_a, expected_b = _torch_logits(theirs, a), _torch_logits(theirs, b)

    ids = jnp.concatenate([a, b, np.zeros((2, 6), int)], axis=1).astype(jnp.int32)
    segments = jnp.array([[1] * 23 + [2] * 41 + [0] * 6] * 2, jnp.int32)
    positions = jnp.array([[*range(23), *range(41), *range(6)]] * 2, jnp.int32)
    logits_of = _logits_of(model)
    logits = logits_of(params, ids, positions, segments)

    np.testing.assert_allclose(logits[:, :23], expected_a, atol=1e-4)
    np.testing.assert_allclose(logits[:, 23:64], expected_b, atol=1e-4)
    # Without segments the second part would see the first: this is what it would give.
    leaked = logits_of(params, ids, positions, jnp.ones_like(segments))
    assert np.abs(leaked[:, 23:64] - expected_b).max() > 1e-2


@pytest.mark.parametrize("changes", CASES[1:3] + CASES[4:])
def test_decoding_with_the_cache_equals_transformers(tmp_path, changes):
    theirs = reference.make(tmp_path, **changes)
    model, params = reference.load(tmp_path)
    c, mesh = model.config, mesh_of()
    served = InferenceDecoder(c, mesh)
    params = served_params(params, model.clone(mesh=mesh), served)

    def logits_of(*inputs):
        inputs = jax.tree.map(jnp.asarray, inputs)
        hidden, k, v = served(params, *inputs)
        return np.asarray(hidden @ head_table(params).T), k, v

    rng = np.random.default_rng(1)
    ids = rng.integers(0, 96, (2, 20)).astype(np.int32)
    expected = _torch_logits(theirs, ids)
    prompt_lengths = [9, 5]  # rows of different length, padded on the right

    segments = np.array([[1] * n + [0] * (9 - n) for n in prompt_lengths], np.int32)
    positions = np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9))
    logits, k, v = logits_of(ids[:, :9], positions, segments)
    for row, n in enumerate(prompt_lengths):
        np.testing.assert_allclose(logits[row, :n], expected[row, :n], atol=1e-4)

    # The ring has room for the longest row and not for more, and turns past its end.
    cache = KVCache.zeros(c, 3, 20, jnp.float32, stacked=1).replace(clock=jnp.int32(15))
    slot = np.array([0, 2, 7], np.int32)
    spans = np.array([[1, 0, 5], [0, 0, 9], [0, 0, 9]], np.int32).T
    cache = cache.filled(k, v, Spans(*spans, np.int32(0)), slot)
    assert cache.length.tolist() == [5, 0, 9]
    order = np.array([1, 1, 0])
    for _ in range(11):
        at = np.asarray(cache.length)
        token = ids[order, at][:, None]
        ones = np.ones((3, 1), np.int32)
        logits, k, v = logits_of(token, at[:, None], ones, cache, at.max())
        np.testing.assert_allclose(logits[:, 0], expected[order, at], atol=1e-4)
        cache = cache.replace(
            k=k, v=v, length=cache.length + 1, clock=(cache.clock + 1) % cache.size
        )


def test_slower_rotary_frequencies_equal_transformers():
    """Llama-3.1-8B's, whose waves are kept, interpolated and stretched."""
    rope = reference.LLAMA_3 | dict(
        rope_theta=500_000.0, original_max_position_embeddings=8192
    )
    changes = dict(head_dim=128, max_position_embeddings=131_072, rope_parameters=rope)
    theirs = transformers.LlamaConfig(**{**reference.SMALL, **changes})
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
    config = DecoderConfig.from_hf(theirs.to_dict())

    def frequencies(config):
        cos, sin = rotary(jnp.ones((1, 1), jnp.int32), config)
        return np.arctan2(sin, cos)[0, 0]

    ours = frequencies(config)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    ratio = frequencies(dataclasses.replace(config, rope_scaling=None)) / ours
    assert ratio[0] == 1 and abs(ratio[-1] - 8) < 1e-5
    assert ((ratio > 1.01) & (ratio < 7.9)).any()


FIELDS = "hidden_size intermediate_size num_hidden_layers num_attention_heads"
FIELDS += " num_key_value_heads vocab_size tie_word_embeddings"
# The values of these fields, and the parameters.
SIZES = {
    "qwen2 0.5B": ((896, 4864, 24, 14, 2, 151936, True), 494_032_768),
    "qwen2 7B": ((3584, 18944, 28, 28, 4, 152064, False), 7_615_616_512),
    "qwen2 72B": ((8192, 29568, 80, 64, 8, 152064, False), 72_706_203_648),
    "qwen3 0.6B": ((1024, 3072, 28, 16, 8, 151936, True), 596_049_920),
    "qwen3 8B": ((4096, 12288, 36, 32, 8, 151936, False), 8_190_735_360),
    "llama 1B": ((2048, 8192, 16, 32, 8, 128256, True), 1_235_814_400),
    "llama 8B": ((4096, 14336, 32, 32, 8, 128256, False), 8_030_261_248),
}


@pytest.mark.parametrize("name", SIZES)
def test_full_sizes_have_the_published_parameter_counts(name):
    values, count = SIZES[name]
    family, sizes = name.split()[0], dict(zip(FIELDS.split(), values, strict=True))
    if family == "qwen3":
        sizes["head_dim"] = 128
    config = reference.config_of(model_type=family, **sizes)
    shapes, _ = abstract_params(Decoder(config))
    assert sum(x.size for x in jax.tree.leaves(shapes)) == count
