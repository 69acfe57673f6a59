"""One buffer for what several virtual CPU devices hold alike."""

from typing import Any

import jax
import numpy as np


def share_replicas(tree: Any) -> Any:
    """The same arrays, with one buffer for all equal shards of a process.

    JAX gives each virtual CPU device a copy of its own. Matrix products of few rows
    read weights as fast as these come out of the cache that the cores share, and with
    a copy for each core they no longer fit there: a decode step's products take half
    as long again. Other platforms' arrays are returned as they are.

    Args:
      tree: of `jax.Array`; none of them may be donated afterwards.
    """
    return jax.tree.map(_share, tree)


def _share(array: jax.Array) -> jax.Array:
    if next(iter(array.sharding.device_set)).platform != "cpu":
        return array
    first: dict[tuple, np.ndarray] = {}
    shards = []
    for shard in array.addressable_shards:
        place = tuple((part.start, part.stop) for part in shard.index)
        # A view, which `device_put` takes over where it is without copying it.
        buffer = first.setdefault(place, np.asarray(shard.data))
        shards.append(jax.device_put(buffer, shard.device))
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)
