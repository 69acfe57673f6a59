"""Samples tokens from logits by inverting the CDF, without sorting the vocabulary.

The vocabulary may be sharded over devices. For each row, the devices then exchange
mainly the sums of all blocks of 128 entries, and the entries of two blocks. Except for
rounding, the sampled tokens do not depend on the sharding.

Axes: B rows, V vocabulary, W entries of the vocabulary on this device, N blocks of 128
entries.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Int32

from models.online_softmax import LEAST, online_softmax

_BLOCK = 128


def draw_tokens(
    logits: Float32[jax.Array, "B W"],
    uniforms: Float32[jax.Array, "B 2"],
    temperature: Float[jax.Array, ""],
    top_p: Float[jax.Array, ""],
    axes: tuple[str, ...] = (),
    *,
    truncates: bool = True,
    one_pass: bool = False,
) -> tuple[Int32[jax.Array, " B"], Float32[jax.Array, " B"]]:
    """Samples one token per row by inverse CDF.

    One uniform number per row selects a block of 128 entries, and another an entry of
    the block. This preserves float32's relative precision in the tails. (One Gumbel
    number per entry would cost more than the matrix products of a decode step.) Without
    `truncates` there are no branches or loops, so a GPU does not wait for the host.

    Args:
      uniforms: two uniform random numbers in [0, 1) per row.
      temperature: the sampling temperature; 0 selects the largest logit.
      top_p: the nucleus mass in (0, 1]. Tokens are sampled from the smallest set of
        most likely tokens with at least this mass. If tokens are equally likely at the
        edge of the set, all of them are included.
      axes: the mesh axes that shard the vocabulary; `()` if it is not sharded. All
        devices that share a row must call this function together.
      truncates: whether to apply `top_p`.
      one_pass: whether to read all logits only once (`models.online_softmax`); ignored
        if `truncates` is set.

    Returns:
      The token ids, and their log-probabilities in the distribution that they were
      sampled from (for greedy decoding, the softmax of the logits). A row with a NaN
      gives the last token of the vocabulary and NaN.
    """
    greedy = temperature == 0
    scaled = logits / jnp.where(greedy, 1.0, temperature)
    rows, words = logits.shape
    tiles = _Tiles(rows, words, axes)
    cut = tiles.cut(scaled, LEAST)
    if one_pass and not truncates:
        tops, sums = online_softmax(cut)
        top = jax.lax.pmax(jnp.max(tops, axis=-1, keepdims=True), axes)
        sums = tiles.all(sums * jnp.exp(tops - top))
        mass = jnp.sum(sums, axis=-1)
        edge = jnp.zeros_like(mass)
    else:
        tops = jnp.max(cut, axis=-1)
        top = jax.lax.pmax(jnp.max(tops, axis=-1, keepdims=True), axes)
        weights = jnp.exp(scaled - top)
        if truncates:
            filters = ~greedy & (top_p < 1)
            edge = jnp.where(filters, _nucleus_edge(weights, top_p, axes), 0)
            weights = jnp.where(weights < edge[:, None], 0, weights)  # keeps NaN
        else:
            edge = jnp.zeros_like(top[:, 0])
        sums = tiles.all(jnp.sum(tiles.cut(weights, 0.0), axis=-1))
        mass = jax.lax.psum(jnp.sum(weights, axis=-1), axes)

    def weights_in(block):
        entries, real = tiles.entries(cut, block)
        weights = jnp.where(real, jnp.exp(entries - top), 0)
        return jnp.where(weights >= edge[:, None], weights, 0), entries

    block = _pick(sums, uniforms[:, 0])
    weights, entries = weights_in(block)
    place = _pick(weights, uniforms[:, 1])
    # Rounding at the end of the CDF can select an entry of weight 0.
    best_instead = greedy | (_at(weights, place) <= 0)
    best_block = tiles.first_best(tops, top)
    _, best_entries = weights_in(best_block)
    best = jnp.sum(jnp.cumsum(best_entries == top, axis=-1) == 0, axis=-1)
    place = jnp.where(best_instead, jnp.minimum(best, _BLOCK - 1), place)
    logit = jnp.where(best_instead, _at(best_entries, place), _at(entries, place))
    token = jnp.where(best_instead, best_block, block) * _BLOCK + place
    # Whether a maximum ignores NaN depends on the compiler; a sum never does.
    defined, last = mass > 0, tiles.vocabulary - 1
    token = jnp.where(defined, jnp.minimum(token, last), last)
    logprob = jnp.where(defined, logit - top[:, 0] - jnp.log(mass), jnp.nan)
    return token.astype(jnp.int32), logprob


class _Tiles:
    """Divides the vocabulary into blocks of 128 entries, which may span devices."""

    def __init__(self, rows: int, words: int, axes: tuple[str, ...]):
        self._rows, self._words, self._axes = rows, words, axes
        self._first = jax.lax.axis_index(axes) * words  # this device's first entry
        self.vocabulary = words * jax.lax.axis_size(axes)
        self._blocks = -(-self.vocabulary // _BLOCK)

    def cut(self, x: jax.Array, fill: float) -> jax.Array:
        """Divides `[B, W]` into blocks `[B, N, 128]`.

        Padding, and positions of entries on other devices, are set to `fill`.
        """
        if self._axes and self._words % _BLOCK:
            width = -(-(self._words + _BLOCK) // _BLOCK) * _BLOCK
            own = jnp.full((self._rows, width), fill, x.dtype)
            x = jax.lax.dynamic_update_slice_in_dim(own, x, self._first % _BLOCK, 1)
        else:
            pad = -self._words % _BLOCK
            x = jnp.pad(x, ((0, 0), (0, pad)), constant_values=fill)
        return x.reshape(self._rows, -1, _BLOCK)

    def all(self, sums: jax.Array) -> jax.Array:
        """Returns the sums `[B, N]` of all blocks, given the sums on this device."""
        if not self._axes:
            return sums
        whole = jnp.zeros((self._rows, self.vocabulary // _BLOCK + 2), sums.dtype)
        start = self._first // _BLOCK
        whole = jax.lax.dynamic_update_slice_in_dim(whole, sums, start, 1)
        return jax.lax.psum(whole, self._axes)[:, : self._blocks]

    def entries(self, cut: jax.Array, block: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns entries `[B, 128]` of `block [B]`, and a mask: False for padding."""
        mine = block - self._first // _BLOCK
        own = jnp.take_along_axis(cut, mine[:, None, None], axis=1, mode="clip")[:, 0]
        word = block[:, None] * _BLOCK + jnp.arange(_BLOCK)
        here = (word >= self._first) & (word < self._first + self._words)
        entries = jax.lax.psum(jnp.where(here, own, 0), self._axes)
        return entries, word < self.vocabulary

    def first_best(self, tops: jax.Array, top: jax.Array) -> jax.Array:
        """Returns the index `[B]` of the first block with the maximum `top` of its row.

        If `top` is NaN, returns the last block. `tops` has the maxima of the blocks on
        this device.
        """
        block = self._first // _BLOCK + jnp.arange(tops.shape[-1])
        found = jnp.min(jnp.where(tops == top, block, self._blocks - 1), axis=-1)
        return jax.lax.pmin(found, self._axes)


def _at(entries: jax.Array, place: jax.Array) -> jax.Array:
    return jnp.take_along_axis(entries, place[:, None], axis=-1)[:, 0]


def _pick(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """Samples one index per row, in proportion to the weights.

    The result is the first index at which the cumulative weight exceeds `uniform` times
    the sum of the weights, or the last index if rounding leaves none.
    """
    cumulative = jnp.cumsum(weights, axis=-1)
    goal = uniform * cumulative[:, -1]
    index = jnp.sum(cumulative <= goal[:, None], axis=-1)
    return jnp.minimum(index, weights.shape[-1] - 1)


def _nucleus_edge(
    weights: jax.Array, top_p: jax.Array, axes: tuple[str, ...]
) -> jax.Array:
    """Returns a threshold for each row, `[B]`; weights at or above it are the nucleus.

    The nucleus is the smallest set of the largest weights, with ties, that has at least
    `top_p` of the total. The threshold is found by bisection on float32 bit patterns,
    which have the same order as the values in [0, 1] that they represent. Because of
    rounding, weights below about 1e-7 of the total may be missing if `top_p` is near 1.
    """
    total = jax.lax.psum(jnp.sum(weights, axis=-1), axes)

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low + 1) // 2
        inside = jnp.where(weights >= _value(middle)[:, None], weights, 0)
        enough = jax.lax.psum(jnp.sum(inside, axis=-1), axes) >= top_p * total
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle - 1)

    # Weights below this floor sum to less than half of the mass outside the nucleus.
    words = weights.shape[-1] * jax.lax.axis_size(axes)
    floor = (1 - top_p) * total / (2 * words)
    low = jax.lax.bitcast_convert_type(floor, jnp.int32)
    high = jax.lax.bitcast_convert_type(jnp.ones_like(floor), jnp.int32)
    return _value(jax.lax.fori_loop(0, 31, halve, (low, high))[0])


def _value(bits: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
