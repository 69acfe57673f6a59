"""A version of the policy where the trainer has it: in its devices' own memory.

For servers of the same node. Nothing is written: the parameters are laid out and cast
on the devices that hold them, every device its shards, and a server reads each shard
from there (`rollout.vllm.memory`) while it serves. The shards stay as they are until
the next version is staged, so that they cost each device its share of one copy in the
serving dtype.
"""

import secrets
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.safetensors_io import Specs
from rollout.vllm import memory
from rollout.vllm.checksum import WORDS, joined, of_sums
from rollout.vllm.weight_sync import WIRE_DTYPES, greeting


class DeviceBuffers:
    """The current version as arrays of JAX; see `WeightTransport`."""

    def __init__(
        self,
        lay_out: Callable[[Any], Iterable[tuple[str, jax.Array]]],
        *,
        specs: Specs,
        dtype: str,
    ):
        """
        Args:
          lay_out: each tensor of a parameter tree as the servers name and shape it, in
            the serving dtype, sharded over devices of this process.
          specs: `(shape, dtype)` of what `lay_out` yields.
          dtype: the serving dtype, which all of `specs` have.
        """
        self._lay_out, self._specs = lay_out, specs
        self._dtype = WIRE_DTYPES[dtype]
        self._token = secrets.token_hex(16)
        # Of host memory the arrays themselves are read; of a GPU, copies of them.
        self._held: list[jax.Array] = []
        self._gpus: dict[int, memory.GpuShare] = {}

    def hello(self) -> dict[str, Any]:
        token = np.frombuffer(self._token.encode(), np.uint8)
        self._beacon = jax.device_put(token, jax.local_devices()[0])
        (shard,) = self._beacon.addressable_shards
        return greeting(self._specs, self._dtype, self._share(shard), self._token)

    def stage(self, params: Any, version: str) -> dict[str, Any]:
        """Lays `params` out. No server may be reading the last version.

        Raises:
          OSError: CUDA does not share its memory, in its words.
        """
        self._held.clear()
        for gpu in self._gpus.values():
            gpu.renew()
        tensors = {}
        for name, array in self._lay_out(params):
            shards = [s for s in array.addressable_shards if s.replica_id == 0]
            sums = [_sums(shard.data) for shard in shards]
            tensors[name] = {
                "digest": joined(of_sums(*map(np.asarray, of)) for of in sums),
                "parts": [
                    {"at": _place(shard), "memory": self._share(shard)}
                    for shard in shards
                ],
            }
        return {"version": version, "tensors": tensors}

    def _share(self, shard: jax.Shard) -> dict[str, Any]:
        data = jax.block_until_ready(shard.data)
        where = data.unsafe_buffer_pointer(), data.nbytes
        if shard.device.platform == "cpu":
            self._held.append(data)
            return memory.share_host(*where)
        device = shard.device.local_hardware_id
        if device not in self._gpus:
            self._gpus[device] = memory.GpuShare(device)
        return self._gpus[device].copy(*where)

    def close(self) -> None:
        self._held.clear()
        for gpu in self._gpus.values():
            gpu.close()


@jax.jit
def _sums(array: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What `checksum.of_sums` asks for, taken where the array is."""
    bits = jax.lax.bitcast_convert_type(
        array.reshape(-1), jnp.dtype(f"u{array.dtype.itemsize}")
    )
    row = 4 * WORDS // bits.dtype.itemsize
    whole = bits.size - bits.size % row
    words = bits[:whole].reshape(-1, WORDS, row // WORDS)
    if words.shape[-1] > 1:
        words = jax.lax.bitcast_convert_type(words, jnp.uint32)
    else:
        words = words[..., 0]
    columns, rows = (words.sum(axis, dtype=jnp.uint32) for axis in (0, 1))
    return columns, rows, _bytes(bits[whole:])


def _bytes(bits: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(bits, jnp.uint8).reshape(-1)


def _place(shard: jax.Shard) -> list[list[int]]:
    """From where to where it lies in the tensor, by dimension."""
    starts = [index.start or 0 for index in shard.index]
    sizes = shard.data.shape
    return [[i, i + size] for i, size in zip(starts, sizes, strict=True)]
