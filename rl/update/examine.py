"""Computes digests of arrays and counts non-finite entries, on the devices."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sharding.rules import named_sharding


class NotFinite(ValueError):
    """Signals that an array holds a NaN or an infinity."""


class Finding(NamedTuple):
    """Holds what `examine` finds in one array."""

    digest: int  # 32 bits, equal for every sharding; any single flipped bit changes it
    nonfinite: int  # number of entries that are NaN or infinite


def examine(tree: Any) -> dict[str, Finding]:
    """Returns the `Finding` of each array in a tree, by path (`params/layers/q`).

    In a multi-process run, every process must call this function.
    """
    found = {}
    for name, x in by_path(tree).items():
        if x.sharding.memory_kind == "pinned_host":
            x = jax.device_put(x, x.sharding.with_memory_kind("device"))
        found[name] = _program(getattr(x.sharding, "mesh", None))(x)
    return {
        name: Finding(int(digest), int(nonfinite))
        for name, (digest, nonfinite) in jax.device_get(found).items()
    }


def check_finite(tree: Any, where: str) -> dict[str, Finding]:
    """Returns `examine(tree)`; raises NotFinite if an entry is NaN or infinite.

    The message begins with `where` and names the first array with such an entry.
    """
    found = examine(tree)
    if bad := [name for name, of_array in found.items() if of_array.nonfinite]:
        count, size = found[bad[0]].nonfinite, by_path(tree)[bad[0]].size
        more = f"; tensors affected: {len(bad)}" if bad[1:] else ""
        raise NotFinite(
            f"{where}: {bad[0]} is not finite in {count:,} of {size:,} entries{more}"
        )
    return found


def digest(tree: Any) -> jax.Array:
    """Computes one 32-bit digest of a whole tree; may be called inside `jax.jit`."""
    total = jnp.uint32(0)
    for i, leaf in enumerate(jax.tree.leaves(tree)):
        total += np.uint32(2 * i + 1) * _digest(leaf)
    return total


def by_path(tree: Any) -> dict[str, Any]:
    """Returns a tree's leaves by path, with `/` between the parts."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@functools.cache
def _program(mesh: Any):
    # Replicated, so that every process can read the two integers.
    out = named_sharding(mesh) if isinstance(mesh, Mesh) else None

    def examined(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _digest(x), jnp.sum(~jnp.isfinite(x), dtype=jnp.uint32)

    return jax.jit(examined, out_shardings=out)


def _digest(array: jax.Array) -> jax.Array:
    # The sum of weight(index) * bits modulo 2**32, which does not depend on order or
    # sharding. Weights are odd, so a flipped bit changes the sum: an odd number times a
    # power of two below 2**32 is never 0 modulo 2**32.
    width = 8 * array.dtype.itemsize
    if array.dtype == jnp.bool_:
        bits = array.astype(jnp.uint32)
    elif width <= 32:
        unsigned = jnp.dtype(f"uint{width}")
        bits = jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)
    else:  # each 64-bit entry becomes a pair
        bits = jax.lax.bitcast_convert_type(array, jnp.uint32)
    index, stride = jnp.zeros(bits.shape, jnp.uint32), 1
    for axis in reversed(range(bits.ndim)):
        along = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        index += along * np.uint32(stride % 2**32)
        stride *= bits.shape[axis]
    # MurmurHash3's finalizer, so that neighbours get unrelated weights.
    index = (index ^ (index >> 16)) * np.uint32(0x85EBCA6B)
    index = (index ^ (index >> 13)) * np.uint32(0xC2B2AE35)
    weight = (index ^ (index >> 16)) | 1
    return jnp.sum(bits * weight, dtype=jnp.uint32)
