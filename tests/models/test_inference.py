"""The decoder as it is served: more devices to a copy than kv heads, one loop."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.cache import KVCache, Spans
from models.decoder import Decoder, init_params
from models.inference import InferenceDecoder, served_config, served_params
from tests.meshes import mesh_of
from tests.models.reference import config_of

pytestmark = pytest.mark.usefixtures("quick_compilation")

# Three query heads to a kv head, as 7B has seven: they divide over no two devices. With
# Qwen2's biases and Qwen3's norms.
SIZES = dict(hidden_size=48, intermediate_size=64, num_attention_heads=6, head_dim=8)
CONFIG = dataclasses.replace(config_of(**SIZES), qk_norm=True)


@pytest.fixture(scope="module")
def trained():
    model = Decoder(CONFIG, mesh_of())
    params = init_params(model, model.mesh, 0)
    # Zeros at first: a bias that goes to the wrong head must show.
    return model, jax.tree.map(
        lambda x: x + 0.1 * np.random.default_rng(x.size).normal(size=x.shape), params
    )


def test_heads_that_divide():
    def heads(tensor):
        served = served_config(CONFIG, tensor)
        return served.num_heads, served.num_kv_heads

    assert heads(1) == heads(2) == (6, 2)
    assert heads(4) == (8, 4)  # of each kv head two and two, one of them empty
    assert heads(8) == (8, 8)


STACKED = dict(stacked=2)
BLOCKS = dict(stacked=2, cache_block=4)
KERNEL = dict(attention="triton", cache_block=4, joins=True)


@pytest.mark.parametrize(
    ("tensor", "how"),
    [(1, STACKED), (1, KERNEL), (4, STACKED), (8, BLOCKS), (8, KERNEL)],
)
def test_heads_that_stand_on_several_devices_change_nothing(trained, tensor, how):
    """Nor do a loop over the layers, a cache that is read by blocks, and the kernel."""
    model, params = trained
    served = InferenceDecoder(served_config(CONFIG, tensor), model.mesh, **how)
    weights = served_params(params, model, served)
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 96, (2, 12)), jnp.int32)
    positions = jnp.broadcast_to(jnp.arange(12), ids.shape)
    ones = jnp.ones_like(ids)
    expected = jax.jit(model.apply)({"params": params}, ids, positions, ones)

    run = jax.jit(served.__call__)
    hidden, k, v = run(weights, ids[:, :5], positions[:, :5], ones[:, :5])
    np.testing.assert_allclose(hidden, expected[:, :5], atol=1e-5)
    # A ring that turns past its end while these are decoded.
    cache = KVCache.zeros(served.config, 2, 12, jnp.float32, stacked=served.stacked)
    cache = cache.replace(clock=jnp.int32(9))
    at = np.arange(2, dtype=np.int32)
    spans = Spans(at, np.zeros_like(at), np.full_like(at, 5), np.int32(0))
    cache = cache.filled(k, v, spans, at)
    for t in range(5, 12):
        now = slice(t, t + 1)
        hidden, k, v = run(
            weights, ids[:, now], positions[:, now], ones[:, now], cache, t
        )
        np.testing.assert_allclose(hidden, expected[:, now], atol=1e-5)
        length, clock = cache.length + 1, (cache.clock + 1) % 12
        cache = cache.replace(k=k, v=v, length=length, clock=clock)


def test_of_a_cache_only_blocks_that_somebody_sees_are_read(trained):
    """A NaN in any other would reach the result, masked or not."""
    model, params = trained
    served = InferenceDecoder(CONFIG, model.mesh, stacked=2, cache_block=4)
    weights = served_params(params, model, served)
    cache = KVCache.zeros(CONFIG, 1, 16, jnp.float32, stacked=2)
    # Five columns are seen, from the newest, 5, back to 1: the first two blocks.
    unseen = jnp.arange(16) >= 8
    cache = cache.replace(
        k=tuple(jnp.where(unseen, jnp.nan, k) for k in cache.k),
        v=tuple(jnp.where(unseen[:, None], jnp.nan, v) for v in cache.v),
        length=jnp.array([4], jnp.int32),
        clock=jnp.int32(5),
    )
    one = jnp.ones((1, 1), jnp.int32)
    for longest, finite in ((4, True), (6, False)):
        hidden, _, _ = served(weights, one, 4 * one, one, cache, longest)
        assert bool(jnp.isfinite(hidden).all()) == finite
