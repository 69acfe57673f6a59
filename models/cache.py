"""The key-value cache of a decode batch, a ring over its positions.

Axes: B rows, S cached positions, T positions of a prompt, K kv heads, H head width.
"""

import flax.struct
import jax
import jax.numpy as jnp

from models.config import Qwen2Config

Entries = tuple[jax.Array, ...]


@flax.struct.dataclass
class KVCache:
    """Keys and values of positions already seen, of each row the last `length`.

    The columns are a ring that all rows turn together: whatever its length, a row's
    newest entry is in the column before `clock`, so that a decode step writes one slice
    of an array and not one place per row.

    Attributes:
      k: of each layer `[B, K, H, S]`, rotated; the order in which scores are computed.
      v: of each layer `[B, K, S, H]`.
      length: int32 `[B]`.
      clock: int32, the column to be written next.
    """

    k: tuple[jax.Array, ...]
    v: tuple[jax.Array, ...]
    length: jax.Array
    clock: jax.Array

    @classmethod
    def zeros(cls, config: Qwen2Config, batch: int, size: int, dtype) -> "KVCache":
        heads, width = config.num_kv_heads, config.head_dim
        layers = range(config.num_layers)
        return cls(
            k=tuple(jnp.zeros((batch, heads, width, size), dtype) for _ in layers),
            v=tuple(jnp.zeros((batch, heads, size, width), dtype) for _ in layers),
            length=jnp.zeros(batch, jnp.int32),
            clock=jnp.int32(0),
        )

    @property
    def size(self) -> int:
        return self.v[0].shape[2]

    def age(self) -> jax.Array:
        """int32 `[S]`: how many entries of a row are newer than the column's."""
        return (self.clock - 1 - jnp.arange(self.size)) % self.size

    def filled(self, k: Entries, v: Entries, length, row, slot) -> "KVCache":
        """The cache with prompts put into some of its rows.

        Args:
          k, v: of each layer `[Q, K, H, T]` and `[Q, K, T, H]`, as `ServedQwen2`
            returns them for Q prompts.
          length: int32 `[Q]`, how many of the T are the prompt.
          row: int32 `[R]`, the prompt that goes into each slot.
          slot: int32 `[R]`; a slot that does not exist is left out.
        """
        length = length[row]
        at = jnp.clip(length[:, None] - 1 - self.age(), 0, v[0].shape[2] - 1)

        def turn_k(cache, entry):
            turned = jnp.take_along_axis(entry[row], at[:, None, None], axis=3)
            return cache.at[slot].set(turned, mode="drop")

        def turn_v(cache, entry):
            turned = jnp.take_along_axis(entry[row], at[:, None, :, None], axis=2)
            return cache.at[slot].set(turned, mode="drop")

        return self.replace(
            k=jax.tree.map(turn_k, self.k, k),
            v=jax.tree.map(turn_v, self.v, v),
            length=self.length.at[slot].set(length, mode="drop"),
        )
