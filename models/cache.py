"""The key-value cache of a decode batch, a ring over its positions.

Axes: B rows, S cached positions, P positions that all rows begin with, R prompts that
go into it, Q rows of T positions in which prompts were read, L layers that lie in one
array, K kv heads, H head width.
"""

import dataclasses
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from models.config import DecoderConfig

Entries = tuple[jax.Array, ...]


class Places(NamedTuple):
    """The places of prompts in rows that were read together.

    A prompt's first `shared` positions are the first of its row; the rest begins at
    `start`.

    Attributes:
      row, start: int32 `[R]`.
      length: int32 `[R]`, positions of the prompt.
      shared: int32.
    """

    row: jax.Array
    start: jax.Array
    length: jax.Array
    shared: jax.Array


class Seen(NamedTuple):
    """The part of a cache that the newest position of each row sees.

    Attributes:
      visible: bool `[B, S]`.
      length: int32 `[B]`, visible positions before the newest.
      newest: int32, the column of the newest position.
      reach: int32, columns from there back that any row sees.
    """

    visible: jax.Array
    length: jax.Array
    newest: jax.Array
    reach: jax.Array


class Cached(NamedTuple):
    """The cache of one layer.

    Attributes:
      k, v: the arrays of a `KVCache` with the layer's entries.
      page: the arrays with those of the page, if any.
      layer: int32, which of the L.
      seen: by the newest position of each row.
    """

    k: jax.Array
    v: jax.Array
    page: tuple[jax.Array, ...]
    layer: jax.Array
    seen: Seen

    def written(self, k: jax.Array, v: jax.Array) -> "Cached":
        """With the newest position's entries, `[B, 1, K, H]` both, in their column."""
        of_layers = self.k.ndim - 4
        at, axes = (self.layer,) * of_layers, tuple(range(of_layers))
        new_k = jnp.expand_dims(k.transpose(0, 2, 3, 1), axes)
        new_v = jnp.expand_dims(v.transpose(0, 2, 1, 3), axes)
        put, newest = jax.lax.dynamic_update_slice, self.seen.newest
        return self._replace(
            k=put(self.k, new_k, (*at, 0, 0, 0, newest)),
            v=put(self.v, new_v, (*at, 0, 0, newest, 0)),
        )


@flax.struct.dataclass
class KVCache:
    """Keys and values of positions already seen, of each row the last `length`.

    The columns are a ring that all rows turn together: whatever its length, a row's
    newest entry is in the column before `clock`, so that a decode step writes one slice
    of an array and not one place per row.

    Attributes:
      k: of the layers, in order, arrays `[L, B, K, H, S]` for some layers each, or
        `[B, K, H, S]` for one: with an axis of 1 XLA on a CPU copies all of it at every
        step. Rotated; with S last, a CPU takes half the time for the scores.
      v: `[L, B, K, S, H]` in the same way.
      length: int32 `[B]`.
      clock: int32, the column to be written next.
      page: keys and values of what all rows begin with, of each array of layers
        `[L, K, H, P]` and `[L, K, P, H]`, or without L; empty where P is 0. `length`
        does not count them.
    """

    k: Entries
    v: Entries
    length: jax.Array
    clock: jax.Array
    page: tuple[Entries, Entries]

    @classmethod
    def zeros(
        cls,
        config: DecoderConfig,
        batch: int,
        size: int,
        dtype,
        *,
        stacked: int,
        page: int = 0,
    ) -> "KVCache":
        """B = `batch`, S = `size`, P = `page`; L = `stacked` divides the layers."""
        heads, width = config.num_kv_heads, config.head_dim
        lead = () if stacked == 1 else (stacked,)

        def arrays(*shape):
            count = config.num_layers // stacked
            return tuple(jnp.zeros((*lead, *shape), dtype) for _ in range(count))

        of_page = (
            (arrays(heads, width, page), arrays(heads, page, width))
            if page
            else ((), ())
        )
        return cls(
            k=arrays(batch, heads, width, size),
            v=arrays(batch, heads, size, width),
            length=jnp.zeros(batch, jnp.int32),
            clock=jnp.int32(0),
            page=of_page,
        )

    @property
    def size(self) -> int:
        return self.v[0].shape[-2]

    @property
    def page_length(self) -> int:
        _, v = self.page
        return v[0].shape[-2] if v else 0

    def age(self) -> jax.Array:
        """int32 `[S]`: how many entries of a row are newer than the column's."""
        return (self.clock - 1 - jnp.arange(self.size)) % self.size

    def seen(self, longest: jax.Array) -> Seen:
        """What the position about to be written will see.

        Args:
          longest: int32, no row that anybody reads is longer.
        """
        visible = (self.age() + 1) % self.size <= self.length[:, None]
        reach = jnp.minimum(longest + 1, self.size)
        return Seen(visible, self.length, self.clock, reach)

    def of_array(self, i: int, seen: Seen) -> Cached:
        """What the first layer in the i-th array of layers keeps."""
        page = tuple(entries[i] for entries in self.page if entries)
        return Cached(self.k[i], self.v[i], page, jnp.int32(0), seen)

    def filled(self, k: Entries, v: Entries, places: Places, slot) -> "KVCache":
        """The cache with prompts put into some of its rows.

        Args:
          k, v: arrays `[L, Q, K, H, T]` and `[L, Q, K, T, H]`, as `InferenceDecoder`
            returns them for Q rows; the first of these begins with the page.
          places: of the R prompts in them.
          slot: int32 `[R]`, where each goes, all different; a slot that does not
            exist is left out.
        """
        position = places.length[:, None] - 1 - self.age()
        rest = places.start[:, None] + position - places.shared
        at = jnp.where(position < places.shared, position, rest)
        at = jnp.clip(at, 0, v[0].shape[-2] - 1)
        row = places.row[:, None]

        # `[R, S, K, H]`, and no more of the rows than goes into the slots.
        def turned_k(entries):
            return entries[row, :, :, at].transpose(0, 2, 3, 1)

        def turned_v(entries):
            return entries[row, :, at].transpose(0, 2, 1, 3)

        def put(cache, entries, turned):
            # Without the promise of unique slots XLA on a GPU writes 16-bit values
            # with compare-and-swap loops.
            if cache.ndim == 4:
                return cache.at[slot].set(
                    turned(entries), mode="drop", unique_indices=True
                )

            # Layer by layer: what is turned is as long as a row of the cache.
            def layer(i, cache):
                return cache.at[i, slot].set(
                    turned(entries[i]), mode="drop", unique_indices=True
                )

            return jax.lax.fori_loop(0, len(cache), layer, cache)

        def of_first_row(entries, axis):
            kept = jax.lax.slice_in_dim(entries, 0, self.page_length, axis=axis)
            return kept[..., 0, :, :, :]

        return dataclasses.replace(
            self,
            k=jax.tree.map(lambda c, e: put(c, e, turned_k), self.k, k),
            v=jax.tree.map(lambda c, e: put(c, e, turned_v), self.v, v),
            length=self.length.at[slot].set(
                places.length - self.page_length, mode="drop", unique_indices=True
            ),
            page=(
                tuple(of_first_row(entries, -1) for entries in k),
                tuple(of_first_row(entries, -2) for entries in v),
            )
            if self.page_length
            else self.page,
        )
