"""A version of the policy where the trainer has it: in its devices' own memory.

For servers of the same node. Nothing is written: the parameters are laid out and cast
on the devices that hold them, every device keeping its shards, and a server reads each
shard from there (`rollout.vllm.memory`) while it serves. The shards stay as they are
until the next version is staged, so that they cost each device its share of one copy
in the serving dtype.
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
from rollout.vllm.weight_sync import WIRE_DTYPES, PublishedFiles


class DeviceBuffers:
    """The current version as arrays of JAX; see `WeightTransport`."""

    backend = PublishedFiles.backend

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
        self._beacon = np.frombuffer(self._token.encode(), np.uint8)
        self._held: list[jax.Array] = []

    def hello(self) -> dict[str, Any]:
        data = self._beacon
        return {
            "shapes": {name: list(shape) for name, (shape, _) in self._specs.items()},
            "dtype": self._dtype,
            "beacon": memory.tell("cpu", data.ctypes.data, data.nbytes),
            "token": self._token,
        }

    def stage(self, params: Any, version: str) -> dict[str, Any]:
        """Lays `params` out. No server may be reading the last version.

        Raises:
          OSError: CUDA does not share its memory, in its words.
        """
        self._held.clear()
        # All is on its way before the first is waited for.
        begun = []
        for name, array in self._lay_out(params):
            self._held.append(array)
            shards = [s for s in array.addressable_shards if s.replica_id == 0]
            begun.append((name, shards, [_sums(shard.data) for shard in shards]))
        tensors = {}
        for name, shards, sums in begun:
            parts = [
                {"digest": of_sums(*map(np.asarray, of)), **_told(shard)}
                for shard, of in zip(shards, sums, strict=True)
            ]
            digest = joined(part["digest"] for part in parts)
            tensors[name] = {"digest": digest, "parts": parts}
        return {"version": version, "tensors": tensors}

    def close(self) -> None:
        self._held.clear()


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


def _told(shard: jax.Shard) -> dict[str, Any]:
    data, shape = shard.data, shard.data.shape
    at = [
        [index.start or 0, (index.start or 0) + size]
        for index, size in zip(shard.index, shape, strict=True)
    ]
    platform = "cpu" if shard.device.platform == "cpu" else "cuda"
    told = memory.tell(
        platform,
        data.unsafe_buffer_pointer(),
        data.nbytes,
        device=shard.device.local_hardware_id or 0,
    )
    return {"at": at, "memory": told}
