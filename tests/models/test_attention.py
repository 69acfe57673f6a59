"""Attention by segment: every implementation the same, nothing leaks, cost follows."""

from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

from models import attention
from models.attention import (
    IMPLEMENTATIONS,
    SHARES_PREFIXES,
    default_implementation,
    dense_attention,
    segment_attention,
)
from models.block_attention import block_attention, visible_pairs

pytestmark = pytest.mark.usefixtures("quick_compilation")

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
    return jnp.array(ids), jnp.array(prefixes)


def _layout_for(name):
    """Without shared segments where an implementation does not know them."""
    ids, prefixes = _layout()
    return ids, prefixes if name in SHARES_PREFIXES else jnp.zeros_like(prefixes)


def _inputs(dtype=jnp.float32):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.normal(size=(ROWS, LENGTH, heads, WIDTH)), dtype)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]


def _with_gradients(attend, dtype=jnp.float32):
    ids, _ = _layout()
    weight = np.random.default_rng(1).normal(size=(ROWS, LENGTH, HEADS, WIDTH))
    weight *= np.asarray(ids > 0)[..., None, None]

    def run(*inputs):
        out = attend(*inputs)
        return jnp.sum(out * weight), out * (ids > 0)[..., None, None]

    run = jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2), has_aux=True))
    (_, out), gradients = run(*_inputs(dtype))
    return [np.asarray(x, np.float64) for x in (out, *gradients)]


def _by_hand(q, k, v, ids, prefixes):
    """Position by position, in float64."""
    ids, prefixes = np.asarray(ids), np.asarray(prefixes)
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros(q.shape)
    for row in range(ROWS):
        for t in range(LENGTH):
            own, prefix = ids[row, t], prefixes[row, t]
            seen = [s for s in range(t + 1) if ids[row, s] in (own, prefix or own)]
            for head in range(HEADS):
                kv = head // (HEADS // KV_HEADS)
                scores = k[row, seen, kv] @ q[row, t, head] / np.sqrt(WIDTH)
                weights = np.exp(scores - scores.max())
                out[row, t, head] = weights @ v[row, seen, kv] / weights.sum()
    return out * (ids > 0)[..., None, None]


def test_segments_and_prefixes_by_hand():
    ids, prefixes = _layout()
    for attend in (dense_attention, partial(IMPLEMENTATIONS["xla"], interpret=True)):
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
    ids, prefixes = _layout_for(name)
    expected = _with_gradients(lambda *x: dense_attention(*x, ids, prefixes))
    found = _with_gradients(
        lambda *x: segment_attention(*x, ids, prefixes, implementation=name, mesh=None),
        jnp.dtype(dtype),
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_one_segment_changes_no_other_by_a_bit(name):
    """The third segment sees the second, which the others of the row do not."""
    ids, prefixes = _layout_for(name)
    how = dict(implementation=name, mesh=None)
    run = jax.jit(lambda *x: segment_attention(*x, ids, prefixes, **how))
    inputs = _inputs()
    at = np.arange(LENGTH)
    end = 220 if name in SHARES_PREFIXES else 100
    for changed, seeing in [((100, 210), (100, 210)), ((70, 100), (70, end))]:
        moved = [x.at[0, slice(*changed)].add(3.0) for x in inputs]
        before, after = np.asarray(run(*inputs)), np.asarray(run(*moved))
        middle = (at >= seeing[0]) & (at < seeing[1])
        other = np.asarray(ids > 0) & ~middle
        other[1] = True
        np.testing.assert_array_equal(before[other], after[other])
        assert (before[0, middle] != after[0, middle]).any(axis=(1, 2)).all()


@pytest.mark.parametrize("width", [80, 128])
def test_kernels_give_finite_results_where_whole_blocks_are_masked(width):
    """The second segment begins within a block and sees no key of the blocks before."""
    ids = jnp.asarray(np.repeat([1, 2, 0], [100, 120, 36]), jnp.int32)[None]
    inputs = [
        8 * jax.random.normal(jax.random.key(i), (1, len(ids[0]), heads, width))
        for i, heads in enumerate((2, 1, 1))
    ]

    def gradients(name):
        def run(q, k, v):
            attend = IMPLEMENTATIONS[name]
            out = attend(q, k, v, ids, jnp.zeros_like(ids), interpret=True)
            return jnp.sum(jnp.where((ids > 0)[..., None, None], out, 0.0) ** 2)

        return jax.jit(jax.value_and_grad(run, (0, 1, 2)))(*inputs)

    (found, d_found), (expected, d_expected) = map(gradients, ("triton", "xla"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for a, b in zip(d_found, d_expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * float(jnp.abs(b).max()))


def test_blocks_visited_grow_with_the_segments_not_the_square_of_the_row():
    def visited(length, segment, block=128):
        ids = jnp.asarray(np.arange(length) // segment + 1, jnp.int32)[None]
        visible, _ = visible_pairs(ids, jnp.zeros_like(ids), block, block)
        return int(visible.sum())

    assert visited(4096, 4096) == 32 * 33 / 2  # one segment: the causal half
    assert visited(4096, 256) == 16 * 3  # sixteen of two blocks each
    assert visited(8192, 256) == 2 * visited(4096, 256)


@pytest.mark.parametrize(
    ("where", "dtype", "chosen"),
    [
        ("cpu", "bfloat16", "xla"),
        ("gpu", "bfloat16", "triton"),
        ("gpu", "float32", "xla"),
        ("tpu", "float32", "splash"),
    ],
)
def test_platform_and_dtype_choose(where, dtype, chosen, monkeypatch):
    monkeypatch.setattr(attention, "platform", lambda mesh: where)
    assert default_implementation(None, dtype) == chosen


@pytest.mark.parametrize("q_block, k_block", [(64, 64), (64, 128), (128, 64)])
def test_every_pair_of_blocks_that_attends_is_visited(q_block, k_block):
    ids, prefixes = _layout()
    visible, _ = visible_pairs(ids, prefixes, q_block, k_block)
    found = set(map(tuple, np.argwhere(visible)))
    seen = np.asarray(ids)[:, :, None] == np.asarray(ids)[:, None]
    seen |= np.asarray(prefixes)[:, :, None] == np.asarray(ids)[:, None]
    seen &= np.tri(LENGTH, dtype=bool) & (np.asarray(ids) > 0)[:, :, None]
    wanted = {(row, q // q_block, k // k_block) for row, q, k in np.argwhere(seen)}
    # Also blocks of padding, and the neighbours of the second segment.
    assert wanted <= found and len(found) <= len(wanted) + 2 * ROWS


@pytest.mark.failure(49)
@pytest.mark.parametrize(
    ("where", "lowered_for", "kernel"),
    [("tpu", "tpu", "tpu_custom_call"), ("gpu", "cuda", "__gpu$xla.gpu.triton")],
)
def test_a_program_for_an_accelerator_has_its_kernel(
    where, lowered_for, kernel, monkeypatch
):
    ids, prefixes = _layout()
    inputs = [jnp.repeat(x, 4, axis=-1) for x in _inputs(jnp.bfloat16)]

    def text():
        how = dict(implementation=default_implementation(None, jnp.bfloat16))
        run = jax.jit(lambda *x: segment_attention(*x, ids, prefixes, mesh=None, **how))
        return run.trace(*inputs).lower(lowering_platforms=(lowered_for,)).as_text()

    assert jax.default_backend() == "cpu"
    assert kernel not in text()
    # The mesh's devices say so, and not the machine's.
    monkeypatch.setattr(attention, "platform", lambda mesh: where)
    # jax 0.11 lowers Triton's kernels for a GPU that is named.
    named = AbstractDevice(device_kind="NVIDIA H100", num_cores=132, platform="gpu")
    mesh = AbstractMesh((1,), ("data",), abstract_device=named)
    with jax.sharding.use_abstract_mesh(mesh) if where == "gpu" else nullcontext():
        assert kernel in text()
