"""Attention by segment: every implementation the same, nothing leaks, cost follows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import (
    IMPLEMENTATIONS,
    SHARES_PREFIXES,
    default_implementation,
    dense_attention,
    segment_attention,
)
from models.block_attention import _visits, block_attention
from sharding.mesh import make_mesh

ROWS, LENGTH, HEADS, KV_HEADS, WIDTH = 2, 384, 4, 2, 32


def _layout():
    """Two rows: five segments, two of which share the second, with padding; one."""
    ids, prefixes = np.zeros((2, ROWS, LENGTH), np.int32)
    for number, (start, stop) in enumerate(
        [(0, 70), (70, 100), (100, 210), (210, 220), (220, 370)], 1
    ):
        ids[0, start:stop] = number
    ids[1] = 1
    prefixes[0, 100:220] = 2
    return ids, prefixes


def _inputs(dtype=jnp.float32):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.normal(size=(ROWS, LENGTH, heads, WIDTH)), dtype)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]


def _with_gradients(attend, dtype=jnp.float32):
    ids, _ = _layout()
    weight = np.random.default_rng(1).normal(size=(ROWS, LENGTH, HEADS, WIDTH))
    weight *= (ids > 0)[..., None, None]

    def run(*inputs):
        out = attend(*inputs)
        return jnp.sum(out * weight), out * (ids > 0)[..., None, None]

    run = jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2), has_aux=True))
    (_, out), gradients = run(*_inputs(dtype))
    return [np.asarray(x, np.float64) for x in (out, *gradients)]


def _by_hand(q, k, v, ids, prefixes):
    """Position by position, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros(q.shape)
    for row in range(ROWS):
        for t in range(LENGTH):
            seen = [
                s
                for s in range(t + 1)
                if ids[row, s] in (ids[row, t], prefixes[row, t] or ids[row, t])
            ]
            for head in range(HEADS):
                kv = head // (HEADS // KV_HEADS)
                scores = k[row, seen, kv] @ q[row, t, head] / np.sqrt(WIDTH)
                weights = np.exp(scores - scores.max())
                out[row, t, head] = weights @ v[row, seen, kv] / weights.sum()
    return out * (ids > 0)[..., None, None]


def test_segments_and_prefixes_by_hand():
    ids, prefixes = _layout()
    for attend in (dense_attention, IMPLEMENTATIONS["xla"]):
        out = _with_gradients(lambda q, k, v, a=attend: a(q, k, v, ids, prefixes))[0]
        expected = _by_hand(*_inputs(), ids, prefixes)
        np.testing.assert_allclose(out, expected, atol=2e-6)


@pytest.mark.parametrize("block", [48, 64, 128, 500])
def test_blocks_of_any_size_give_the_dense_result_and_gradients(block):
    ids, prefixes = _layout()
    dense = _with_gradients(lambda *x: dense_attention(*x, ids, prefixes))
    blocks = _with_gradients(lambda *x: block_attention(*x, ids, prefixes, block))
    for a, b in zip(blocks, dense, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
@pytest.mark.parametrize("dtype, atol", [("float32", 1e-5), ("bfloat16", 0.06)])
def test_every_implementation_gives_the_dense_result_and_gradients(name, dtype, atol):
    ids, prefixes = _layout()
    if name not in SHARES_PREFIXES:
        prefixes = np.zeros_like(prefixes)
    expected = _with_gradients(lambda *x: dense_attention(*x, ids, prefixes))
    found = _with_gradients(
        lambda *x: segment_attention(*x, ids, prefixes, implementation=name, mesh=None),
        jnp.dtype(dtype),
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_one_segment_changes_no_other_by_a_bit(name):
    ids, _ = _layout()
    none = np.zeros_like(ids)
    run = jax.jit(
        lambda q, k, v: segment_attention(
            q, k, v, ids, none, implementation=name, mesh=None
        )
    )
    inputs = _inputs()
    changed = [x.at[0, 100:210].add(3.0) for x in inputs]
    before, after = np.asarray(run(*inputs)), np.asarray(run(*changed))
    other = (ids > 0) & ~((np.arange(LENGTH) >= 100) & (np.arange(LENGTH) < 210))
    other[1] = True
    np.testing.assert_array_equal(before[other], after[other])
    assert not np.array_equal(before[0, 100:210], after[0, 100:210])


def test_a_mesh_changes_nothing():
    ids, prefixes = _layout()
    mesh = make_mesh(data=1, fsdp=2, tensor=2, devices=jax.devices()[:4])
    plain, meshed = (
        jax.jit(
            lambda *x, m=m: segment_attention(
                *x, ids, prefixes, implementation="xla", mesh=m
            )
        )(*_inputs())
        for m in (None, mesh)
    )
    np.testing.assert_allclose(plain, meshed, atol=1e-6)


def test_blocks_visited_grow_with_the_segments_not_the_square_of_the_row():
    def visited(length, segment, block=128):
        ids = np.arange(length) // segment + 1
        ids = jnp.asarray(ids, jnp.int32).reshape(1, -1, block)
        return int(_visits(ids, jnp.zeros_like(ids))[1].sum())

    assert visited(4096, 4096) == 32 * 33 / 2  # one segment: the causal half
    assert visited(4096, 256) == 16 * 3  # sixteen of two blocks each
    assert visited(8192, 256) == 2 * visited(4096, 256)


def test_the_platform_chooses():
    assert default_implementation() == "xla"
