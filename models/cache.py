"""Defines the key-value cache of a decode batch, a ring buffer of columns.

Axes: B rows, S columns, P positions of the prefix that all prompts share, R prompts to
insert, Q prefilled rows of T positions, L layers stacked in one array, K kv heads, H
head width.
"""

import dataclasses
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from models.config import DecoderConfig

Entries = tuple[jax.Array, ...]


class Spans(NamedTuple):
    """Locates prompts in the packed rows of a prefill."""

    row: jax.Array  # int32 [R], the row of each prompt
    start: jax.Array  # int32 [R], column of the first token after the prefix
    length: jax.Array  # int32 [R], number of prefilled tokens, with the prefix
    shared: jax.Array  # int32, length of the prefix, which is at the start of every row


class Seen(NamedTuple):
    """Describes which columns the newest position of each row attends to."""

    visible: jax.Array  # bool [B, S], attention mask of the newest position
    length: jax.Array  # int32 [B], number of visible columns before the newest
    newest: jax.Array  # int32, column of the newest position
    # int32, maximum number of columns that a row attends to, over the rows whose
    # results are used
    reach: jax.Array


class Cached(NamedTuple):
    k: jax.Array  # an array of a `KVCache` that contains the layer
    v: jax.Array
    prefix: tuple[jax.Array, ...]  # of the same layers: k and v, or () without a prefix
    layer: jax.Array  # int32, index of the layer in these arrays
    seen: Seen

    def written(self, k: jax.Array, v: jax.Array) -> "Cached":
        """Returns the cache with k and v `[B, 1, K, H]` written at `seen.newest`."""
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
    """Represents the keys and values of a decode batch.

    The columns are a ring buffer with one write position for all rows: the newest entry
    of every row is in the column before `clock`. A decode step therefore writes one
    slice of an array instead of a separate position for each row.

    Attributes:
      k: rotated keys, one array `[L, B, K, H, S]` for every L layers. If L is 1 its
        shape is `[B, K, H, S]`, because XLA on CPU would copy an array with an axis of
        size 1 in every step. With S last, a CPU computes the scores in half the time.
      v: values, arrays `[L, B, K, S, H]` or `[B, K, S, H]`.
      length: int32 `[B]`, the number of valid columns of each row, without the prefix.
      clock: int32, the column to write next.
      prefix: arrays of keys `[L, K, H, P]` and of values `[L, K, P, H]`, for the prefix
        that all rows share. The axis L is absent if L is 1. `((), ())` for no prefix.
    """

    k: Entries
    v: Entries
    length: jax.Array
    clock: jax.Array
    prefix: tuple[Entries, Entries]

    @classmethod
    def zeros(
        cls,
        config: DecoderConfig,
        batch: int,
        size: int,
        dtype,
        *,
        stacked: int,
        prefix: int = 0,
    ) -> "KVCache":
        """Creates an empty cache of B = `batch` rows and S = `size` columns.

        Each array has L = `stacked` layers, a divisor of the number of layers. `prefix`
        is P, the length of the shared prefix; 0 for none.
        """
        heads, width = config.num_kv_heads, config.head_dim
        lead = () if stacked == 1 else (stacked,)

        def arrays(*shape):
            count = config.num_layers // stacked
            return tuple(jnp.zeros((*lead, *shape), dtype) for _ in range(count))

        of_prefix: tuple[Entries, Entries] = (), ()
        if prefix:
            of_prefix = arrays(heads, width, prefix), arrays(heads, prefix, width)
        return cls(
            k=arrays(batch, heads, width, size),
            v=arrays(batch, heads, size, width),
            length=jnp.zeros(batch, jnp.int32),
            clock=jnp.int32(0),
            prefix=of_prefix,
        )

    @property
    def size(self) -> int:
        return self.v[0].shape[-2]

    @property
    def prefix_length(self) -> int:
        _, v = self.prefix
        return v[0].shape[-2] if v else 0

    def age(self) -> jax.Array:
        """Returns the age of each column in positions, int32 `[S]`; 0 is the newest."""
        return (self.clock - 1 - jnp.arange(self.size)) % self.size

    def layers(self, longest: jax.Array) -> list[Cached]:
        """Returns a `Cached` for each array of layers, to decode the next position.

        `longest` is an upper bound on the length of the rows whose results are used.
        """
        visible = (self.age() + 1) % self.size <= self.length[:, None]
        reach = jnp.minimum(longest + 1, self.size)
        seen = Seen(visible, self.length, self.clock, reach)
        prefixes: list[Entries] = list(zip(*self.prefix, strict=True))
        prefixes = prefixes or [()] * len(self.k)
        return [
            Cached(k, v, prefix, jnp.int32(0), seen)
            for k, v, prefix in zip(self.k, self.v, prefixes, strict=True)
        ]

    def filled(self, k: Entries, v: Entries, spans: Spans, slot) -> "KVCache":
        """Returns the cache with R prefilled prompts, and their shared prefix, added.

        Args:
          k, v: the arrays of keys and values that `InferenceDecoder` returns for Q
            rows. Each row with prompts begins with the shared prefix.
          spans: the spans of the R prompts in these arrays.
          slot: int32 `[R]`, the cache row of each prompt, all different. A prompt is
            not copied if this row is B or more.
        """
        position = spans.length[:, None] - 1 - self.age()
        rest = spans.start[:, None] + position - spans.shared
        at = jnp.where(position < spans.shared, position, rest)
        at = jnp.clip(at, 0, v[0].shape[-2] - 1)
        row = spans.row[:, None]

        # Gathers `[R, S, K, H]`: only the positions that are copied.
        def turned_k(entries):
            return entries[row, :, :, at].transpose(0, 2, 3, 1)

        def turned_v(entries):
            return entries[row, :, at].transpose(0, 2, 1, 3)

        # Without `unique_indices`, XLA on GPU writes 16-bit values with
        # compare-and-swap loops.
        def write(array, at, values):
            return array.at[at].set(values, mode="drop", unique_indices=True)

        def put(cache, entries, turned):
            if cache.ndim == 4:
                return write(cache, slot, turned(entries))

            # One layer at a time, because the transposed copy has S columns per prompt.
            def layer(i, cache):
                return write(cache, (i, slot), turned(entries[i]))

            return jax.lax.fori_loop(0, len(cache), layer, cache)

        def of_first_row(entries, axis):
            start = jax.lax.slice_in_dim(entries, 0, self.prefix_length, axis=axis)
            return start[..., 0, :, :, :]

        filled = dataclasses.replace(
            self,
            k=jax.tree.map(lambda c, e: put(c, e, turned_k), self.k, k),
            v=jax.tree.map(lambda c, e: put(c, e, turned_v), self.v, v),
            length=write(self.length, slot, spans.length - self.prefix_length),
        )
        if not self.prefix_length:
            return filled
        of_k = tuple(of_first_row(entries, -1) for entries in k)
        of_v = tuple(of_first_row(entries, -2) for entries in v)
        return dataclasses.replace(filled, prefix=(of_k, of_v))
