"""Draws tokens from logits: exactly at top_p = 1, and without sorting at any.

The vocabulary may be split over devices, which then exchange a few numbers per row and
one per block of 128 words. The drawn words do not depend on the split.

Axes: B rows, V vocabulary, W words of this device (all, where it is not split), N
blocks of 128 words that they lie in.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Int32

from models.online_softmax import LEAST, online_softmax

_BLOCK = 128


@dataclasses.dataclass(frozen=True)
class Split:
    """The axes of the mesh over which the vocabulary is split."""

    axes: tuple[str, ...] = ()

    def sum(self, x: jax.Array) -> jax.Array:
        return jax.lax.psum(x, self.axes) if self.axes else x

    def max(self, x: jax.Array) -> jax.Array:
        return jax.lax.pmax(x, self.axes) if self.axes else x

    def min(self, x: jax.Array) -> jax.Array:
        return jax.lax.pmin(x, self.axes) if self.axes else x

    def first(self, words: int) -> jax.Array | int:
        """The number of this device's first word."""
        return jax.lax.axis_index(self.axes) * words if self.axes else 0

    def vocabulary(self, words: int) -> int:
        return words * (jax.lax.axis_size(self.axes) if self.axes else 1)


def draw_tokens(
    logits: Float32[jax.Array, "B W"],
    uniforms: Float32[jax.Array, "B 2"],
    temperature: Float[jax.Array, ""],
    top_p: Float[jax.Array, ""],
    split: Split = Split(),
    *,
    nucleus: bool = True,
    one_pass: bool = False,
) -> tuple[Int32[jax.Array, " B"], Float32[jax.Array, " B"]]:
    """Draws one token per row by inverse CDF.

    One uniform per row picks a block of 128 entries, another an entry inside it, so
    that tails keep float32's relative precision. (One Gumbel per entry costs more than
    a decode step's matrix products.) It does not branch, since a GPU would
    wait for the host.

    Args:
      logits: of the next token.
      uniforms: in [0, 1).
      temperature: 0 takes the largest logit.
      top_p: in (0, 1]; the smallest set of most likely tokens whose mass reaches it is
        kept, with ties at its edge.
      split: of the vocabulary; all devices that share it call this together.
      nucleus: False ignores top_p.
      one_pass: without a nucleus, reads the logits once (see `models.online_softmax`)
        and then the drawn block alone.

    Returns:
      Token ids and their log-probabilities in the distribution that they
      were drawn from (for greedy: in the softmax of the logits). A row with a NaN has
      no distribution: the last word, and NaN.
    """
    greedy = temperature == 0
    scaled = logits / jnp.where(greedy, 1.0, temperature)
    rows, words = logits.shape
    tiles = _Tiles(rows, words, split)
    cut = tiles.cut(scaled, LEAST)
    if one_pass and not nucleus:
        tops, sums = online_softmax(cut)
        top = split.max(jnp.max(tops, axis=-1, keepdims=True))
        sums = tiles.all(sums * jnp.exp(tops - top))
        mass = jnp.sum(sums, axis=-1)
        edge = jnp.zeros_like(mass)
    else:
        tops = jnp.max(cut, axis=-1)
        top = split.max(jnp.max(tops, axis=-1, keepdims=True))
        weights = jnp.exp(scaled - top)
        if nucleus:
            filters = ~greedy & (top_p < 1)
            edge = jnp.where(filters, _nucleus_edge(weights, top_p, split), 0)
            weights = jnp.where(weights < edge[:, None], 0, weights)  # NaN stays
        else:
            edge = jnp.zeros_like(top[:, 0])
        sums = tiles.all(jnp.sum(tiles.cut(weights, 0.0), axis=-1))
        mass = split.sum(jnp.sum(weights, axis=-1))

    def weights_in(block):
        entries, real = tiles.entries(cut, block)
        weights = jnp.where(real, jnp.exp(entries - top), 0)
        return jnp.where(weights >= edge[:, None], weights, 0), entries

    block = _pick(sums, uniforms[:, 0])
    weights, entries = weights_in(block)
    place = _pick(weights, uniforms[:, 1])
    # Rounding at the very end of a CDF may name an entry of no weight.
    best_instead = greedy | (_at(weights, place) <= 0)
    best_block = tiles.first_best(tops, top)
    _, best_entries = weights_in(best_block)
    best = jnp.sum(jnp.cumsum(best_entries == top, axis=-1) == 0, axis=-1)
    place = jnp.where(best_instead, jnp.minimum(best, _BLOCK - 1), place)
    logit = jnp.where(best_instead, _at(best_entries, place), _at(entries, place))
    token = jnp.where(best_instead, best_block, block) * _BLOCK + place
    # Maxima may or may not skip a NaN, depending on the compiler; sums never do.
    defined, last = mass > 0, split.vocabulary(words) - 1
    token = jnp.where(defined, jnp.minimum(token, last), last)
    logprob = jnp.where(defined, logit - top[:, 0] - jnp.log(mass), jnp.nan)
    return token.astype(jnp.int32), logprob


class _Tiles:
    """Blocks of the whole vocabulary; one that two devices share is summed."""

    def __init__(self, rows: int, words: int, split: Split):
        self._rows, self._words, self._split = rows, words, split
        self._first = split.first(words)
        self._vocabulary = split.vocabulary(words)
        self._blocks = -(-self._vocabulary // _BLOCK)

    def cut(self, x: jax.Array, fill: float) -> jax.Array:
        """`[B, W] -> [B, N, 128]`, with `fill` where this device has no word."""
        if self._split.axes and self._words % _BLOCK:
            width = -(-(self._words + _BLOCK) // _BLOCK) * _BLOCK
            own = jnp.full((self._rows, width), fill, x.dtype)
            x = jax.lax.dynamic_update_slice_in_dim(own, x, self._first % _BLOCK, 1)
        else:
            pad = -self._words % _BLOCK
            x = jnp.pad(x, ((0, 0), (0, pad)), constant_values=fill)
        return x.reshape(self._rows, -1, _BLOCK)

    def all(self, sums: jax.Array) -> jax.Array:
        """Gathers the sums of all devices' blocks."""
        if not self._split.axes:
            return sums
        whole = jnp.zeros((self._rows, self._vocabulary // _BLOCK + 2), sums.dtype)
        start = self._first // _BLOCK
        whole = jax.lax.dynamic_update_slice_in_dim(whole, sums, start, 1)
        return self._split.sum(whole)[:, : self._blocks]

    def entries(self, cut: jax.Array, block: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns each row's block `[B, 128]`, and which of its entries are words."""
        mine = block - self._first // _BLOCK
        own = jnp.take_along_axis(cut, mine[:, None, None], axis=1, mode="clip")[:, 0]
        word = block[:, None] * _BLOCK + jnp.arange(_BLOCK)
        here = (word >= self._first) & (word < self._first + self._words)
        return self._split.sum(jnp.where(here, own, 0)), word < self._vocabulary

    def first_best(self, tops: jax.Array, top: jax.Array) -> jax.Array:
        """`[B]`: the first block with the best entry."""
        block = self._first // _BLOCK + jnp.arange(tops.shape[-1])
        found = jnp.min(jnp.where(tops == top, block, self._blocks - 1), axis=-1)
        return self._split.min(found)


def _at(entries: jax.Array, place: jax.Array) -> jax.Array:
    return jnp.take_along_axis(entries, place[:, None], axis=-1)[:, 0]


def _pick(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """Returns the entry in which `uniform` of the total weight falls."""
    cumulative = jnp.cumsum(weights, axis=-1)
    goal = uniform * cumulative[:, -1]
    index = jnp.sum(cumulative <= goal[:, None], axis=-1)
    return jnp.minimum(index, weights.shape[-1] - 1)


def _nucleus_edge(weights: jax.Array, top_p: jax.Array, split: Split) -> jax.Array:
    """Returns `[B]` thresholds that exactly the nucleus reaches.

    Bisects the bit patterns of float32, ordered like the positive values, for the
    largest weight at and above which the mass reaches `top_p`, until one weight is left
    between the bounds. Weights below about 1e-7 of the whole are lost to rounding.
    """
    total = split.sum(jnp.sum(weights, axis=-1))
    goal = top_p * total

    def undecided(bounds):
        low, high, reached, short = bounds
        return jnp.any((low < high) & (reached - short >= 1.5 * _value(low)))

    def halve(bounds):
        low, high, reached, short = bounds
        middle = low + (high - low + 1) // 2
        mass = split.sum(
            jnp.sum(jnp.where(weights >= _value(middle)[:, None], weights, 0), axis=-1)
        )
        up = mass >= goal
        return (
            jnp.where(up, middle, low),
            jnp.where(up, high, middle - 1),
            jnp.where(up, mass, reached),
            jnp.where(up, short, mass),
        )

    # Smaller weights add up to less than half of what may be left out.
    floor = (1 - top_p) * total / (2 * split.vocabulary(weights.shape[-1]))
    low = jax.lax.bitcast_convert_type(floor, jnp.int32)
    high = jax.lax.bitcast_convert_type(jnp.ones_like(floor), jnp.int32)
    bounds = low, high, total, jnp.zeros_like(total)
    if split.axes:  # rows elsewhere may need more: to the end, for all alike
        bounds = jax.lax.fori_loop(0, 31, lambda _, bounds: halve(bounds), bounds)
    else:
        bounds = jax.lax.while_loop(undecided, halve, bounds)
    return _value(bounds[0])


def _value(bits: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
