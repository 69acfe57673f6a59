"""One buffer for what several virtual CPU devices hold alike."""

from typing import Any

import jax
import numpy as np


def share_replicas(tree: Any) -> Any:
    """The same arrays, with one buffer for all equal shards of a process.

    JAX gives each virtual CPU device a copy of its own. Matrix products of few rows
    read weights as fast as these come out of the cache that the cores share, and with
    a copy for each core they no longer fit there: a decode step's products take half
    as long again. Other platforms' arrays, and those with no equal shards, are returned
    as they are.

    Args:
      tree: of `jax.Array`. Their memory stays in use as long as the result does.

    Returns:
      Arrays that must not be donated: several devices read the same bytes.
    """
    return jax.tree.map(_share, tree)


def _share(array: jax.Array) -> jax.Array:
    if any(d.platform != "cpu" for d in array.devices()):
        return array
    shards = array.addressable_shards
    places = [
        tuple((part.start, part.stop) for part in shard.index) for shard in shards
    ]
    if len(set(places)) == len(places):
        return array
    # Views, which `device_put` takes over where they are without copying them.
    buffers: dict[tuple, np.ndarray] = {}
    for place, shard in zip(places, shards, strict=True):
        buffers.setdefault(place, np.asarray(shard.data))
    return jax.make_array_from_single_device_arrays(
        array.shape,
        array.sharding,
        [
            jax.device_put(buffers[place], shard.device)
            for place, shard in zip(places, shards, strict=True)
        ],
    )
