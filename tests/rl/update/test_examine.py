"""Digests: of the bits, in their order, and of nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from rl.update.examine import NotFinite, check_finite, examine
from sharding.mesh import make_mesh


def _digest(array):
    return examine({"x": jnp.asarray(array)})["x"].digest


def _expected(array):
    """The formula once more, entry by entry, in Python's integers."""
    flat = np.asarray(array).reshape(-1)
    bits = flat.view(f"uint{8 * flat.itemsize}")
    total = 0
    for i, value in enumerate(bits.tolist()):
        x = ((i ^ i >> 16) * 0x85EBCA6B) % 2**32
        x = ((x ^ x >> 13) * 0xC2B2AE35) % 2**32
        total += ((x ^ x >> 16) | 1) * value
    return total % 2**32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_a_digest_is_the_formula(dtype):
    array = np.asarray(jnp.arange(-60, 60).reshape(4, 5, 6).astype(dtype))
    assert _digest(array) == _expected(array)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 119), st.integers(0, 31))
def test_any_flipped_bit_changes_it(entry, bit):
    array = np.random.default_rng(0).normal(size=120).astype(np.float32)
    changed = array.copy()
    changed.view(np.uint32)[entry] ^= np.uint32(1 << bit)
    assert _digest(changed) != _digest(array)


def test_order_counts_and_so_do_the_signs_of_zeros_and_nans():
    assert _digest(np.float32([1, 2, 3])) != _digest(np.float32([1, 3, 2]))
    assert _digest(np.float32([0.0])) != _digest(np.float32([-0.0]))
    nan = np.array([0x7FC00000], np.uint32).view(np.float32)
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert _digest(nan) != _digest(other)


@pytest.mark.parametrize("spec", [("data",), (None, "fsdp"), ("data", "tensor"), ()])
def test_the_sharding_does_not_count(spec):
    mesh = make_mesh(data=2, fsdp=2, tensor=2)
    array = np.random.default_rng(1).normal(size=(8, 12)).astype(np.float32)
    placed = jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))
    assert examine({"x": placed})["x"].digest == _expected(array)


@pytest.mark.failure(38)
def test_what_is_not_finite_is_counted_and_named():
    tree = {"a": jnp.ones((3, 4)), "b": {"c": jnp.ones(5, jnp.bfloat16)}}
    check_finite(tree, "base")
    tree["b"]["c"] = tree["b"]["c"].at[jnp.array([0, 3])].set(jnp.inf)
    found = examine(tree)
    assert found["a"].nonfinite == 0 and found["b/c"].nonfinite == 2
    with pytest.raises(NotFinite) as caught:
        check_finite(tree, "base")
    assert str(caught.value) == "base: b/c is not finite in 2 of 5 entries"
    tree["a"] = tree["a"].at[0, 0].set(jnp.nan)
    message = "a is not finite in 1 of 12 entries; tensors affected: 2"
    with pytest.raises(NotFinite, match=message):
        check_finite(tree, "base")
