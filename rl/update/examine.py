"""Computes digests of arrays, and counts what is not finite, on the device.

One pass over the device's memory returns two integers per array. A copy of a 7B state
to the host would take a minute.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from sharding.rules import laid_out


class NotFinite(ValueError):
    """A NaN or an infinity where a run cannot continue with one."""


class Finding(NamedTuple):
    """The digest of one array.

    Attributes:
      digest: 32 bits, the same for any sharding. A flipped bit always changes it.
      nonfinite: entries that are NaN or infinite.
    """

    digest: int
    nonfinite: int


def examine(tree: Any) -> dict[str, Finding]:
    """Return the `Finding` of every array of a tree, by path: `params/layers/q`.

    With several processes all of them call it.
    """
    named = by_path(tree)
    found = {name: _program(_mesh(x))(_on_device(x)) for name, x in named.items()}
    return {
        name: Finding(int(digest), int(nonfinite))
        for name, (digest, nonfinite) in jax.device_get(found).items()
    }


def check_finite(tree: Any, where: str) -> dict[str, Finding]:
    """Raise NotFinite if an array is not finite; the message names the first."""
    found = examine(tree)
    bad = [(name, f.nonfinite) for name, f in found.items() if f.nonfinite]
    if bad:
        name, count = bad[0]
        size = by_path(tree)[name].size
        more = f", and {len(bad) - 1} more tensors hold some" if len(bad) > 1 else ""
        raise NotFinite(
            f"{where}: {count:,} of {size:,} entries of {name} are not finite{more}"
        )
    return found


def digest(tree: Any) -> jax.Array:
    """Return one number for a whole tree, within a program; see `Finding`."""
    total = jnp.uint32(0)
    for i, leaf in enumerate(jax.tree.leaves(tree)):
        total += np.uint32(2 * i + 1) * _digest(leaf)
    return total


def by_path(tree: Any) -> dict[str, Any]:
    """Return a tree's leaves by their paths, `/` between the parts."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _mesh(array: jax.Array) -> Mesh | None:
    sharding = array.sharding
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        return sharding.mesh
    return None


def _on_device(array: jax.Array) -> jax.Array:
    """Copy an array from the host's memory to the device, for as long as needed."""
    if array.sharding.memory_kind != "pinned_host":
        return array
    return jax.device_put(array, array.sharding.with_memory_kind("device"))


@functools.cache
def _program(mesh: Mesh | None):
    # All processes must be able to read the two integers.
    out = None if mesh is None else laid_out(mesh)
    return jax.jit(lambda x: (_digest(x), _nonfinite(x)), out_shardings=out)


def _nonfinite(array: jax.Array) -> jax.Array:
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return jnp.uint32(0)
    return jnp.sum(~jnp.isfinite(array), dtype=jnp.uint32)


def _digest(array: jax.Array) -> jax.Array:
    """Return the sum of `weight(index) * bits` modulo 2**32, every weight odd.

    Integer sums do not depend on their order or sharding; an odd weight times a power
    of two below 2**32 is never 0.
    """
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
    return jnp.sum(bits * (_mixed(index) | 1), dtype=jnp.uint32)


def _mixed(x: jax.Array) -> jax.Array:
    """Return MurmurHash3's finalizer: neighbours get unrelated weights."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
