"""Shares one host buffer between virtual CPU devices that hold the same array data."""

from typing import Any

import jax
import numpy as np


def share_replicas(tree: Any) -> Any:
    """Returns equal arrays, in which all copies of a shard in a process share a buffer.

    By default JAX copies an array to each virtual CPU device. Copies of the weights may
    exceed the cache that the cores share, which slows down decoding. Arrays on other
    platforms are returned unchanged.

    Do not donate the result: its buffers are those of `tree`, and devices share them.
    """
    return jax.tree.map(_share, tree)


def _share(array: jax.Array) -> jax.Array:
    if any(d.platform != "cpu" for d in array.devices()):
        return array
    shards = array.addressable_shards
    by_index = {str(shard.index): shard.data for shard in shards}
    if len(by_index) == len(shards):
        return array
    # NumPy views, which `device_put` uses without a copy.
    views = {index: np.asarray(data) for index, data in by_index.items()}
    shared = [jax.device_put(views[str(shard.index)], shard.device) for shard in shards]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shared)
