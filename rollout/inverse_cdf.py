"""Drawing tokens from logits: exact at top_p = 1, and without sorting at any.

The vocabulary may be split over devices. Each then holds its words' logits, and what
the devices tell each other is a few numbers per row, and one per block of 128 words;
the same word is drawn as by one device that holds them all.

Axes: B rows, V vocabulary, W words of this device (all, where it is not split).
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Int32

_BLOCK = 128


@dataclasses.dataclass(frozen=True)
class Split:
    """Over which axes of the mesh the vocabulary is split; none: not at all."""

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
) -> tuple[Int32[jax.Array, " B"], Float32[jax.Array, " B"]]:
    """Draws one token per row by inverse CDF.

    One Gumbel per vocabulary entry costs more than a decode step's matrix products; an
    inverse CDF needs two uniforms per row: one picks a block of 128 entries, the other
    an entry inside it, so that tails keep float32's relative precision.

    Args:
      logits: of the next token.
      uniforms: in [0, 1).
      temperature: 0 takes the largest logit.
      top_p: in (0, 1]; the smallest set of most likely tokens whose mass
        reaches it is kept, ties at its edge with it.
      split: of the vocabulary; all devices that share it call this together.

    Returns:
      Token ids and their log-probabilities in the distribution that they
      were drawn from (for greedy: in the softmax of the logits).
    """
    greedy = temperature == 0
    scaled = logits / jnp.where(greedy, 1.0, temperature)
    top = split.max(jnp.max(scaled, axis=-1, keepdims=True))
    weights = jnp.exp(scaled - top)
    edge = jax.lax.cond(
        greedy | (top_p >= 1),
        lambda weights, _: jnp.zeros_like(weights[:, 0]),
        lambda weights, top_p: _nucleus_edge(weights, top_p, split),
        weights,
        top_p,
    )
    kept = jnp.where(weights >= edge[:, None], weights, 0)
    token = _inverse_cdf(kept, uniforms, split)
    # Rounding at the very end of a CDF may name an entry of no weight.
    best_instead = greedy | (_at(kept, token, split) <= 0)

    def corrected():
        return jnp.where(best_instead, _first_best(scaled, top, split), token)

    if split.axes:  # an exchange is for all or for none
        token = corrected()
    else:
        token = jax.lax.cond(jnp.any(best_instead), corrected, lambda: token)
    mass = split.sum(jnp.sum(kept, axis=-1))
    logprob = _at(scaled - top, token, split) - jnp.log(mass)
    return token.astype(jnp.int32), logprob


def _first_best(scores: jax.Array, best: jax.Array, split: Split) -> jax.Array:
    """The argmax by comparison, or the last entry where nothing compares (NaN).

    XLA's own argmax looks at one entry at a time on a CPU.
    """
    words = scores.shape[-1]
    entries = split.first(words) + jnp.arange(words)
    last = split.vocabulary(words) - 1
    return split.min(jnp.min(jnp.where(scores == best, entries, last), axis=-1))


def _at(array, token, split: Split):
    """`[B]`: each row's entry for its token, from the device that holds it."""
    own = token - split.first(array.shape[-1])
    here = (own >= 0) & (own < array.shape[-1])
    found = jnp.take_along_axis(array, own[:, None], axis=-1, mode="clip")[:, 0]
    return split.sum(jnp.where(here, found, 0))


def _inverse_cdf(weights: jax.Array, uniforms: jax.Array, split: Split) -> jax.Array:
    rows, words = weights.shape
    vocabulary, first = split.vocabulary(words), split.first(words)
    # Blocks are those of the whole vocabulary, so that no split changes what is drawn:
    # one that two devices share is summed from its parts.
    spare = _BLOCK if split.axes else 0
    own = jnp.zeros((rows, -(-(words + spare) // _BLOCK) * _BLOCK), weights.dtype)
    own = jax.lax.dynamic_update_slice_in_dim(own, weights, first % _BLOCK, 1)
    own = own.reshape(rows, -1, _BLOCK)
    sums = jnp.sum(own, axis=-1)
    if split.axes:
        everyone = jnp.zeros((rows, vocabulary // _BLOCK + 2), sums.dtype)
        sums = jax.lax.dynamic_update_slice_in_dim(everyone, sums, first // _BLOCK, 1)
        sums = split.sum(sums)[:, : -(-vocabulary // _BLOCK)]
    block = _pick(sums, uniforms[:, 0])
    mine = block - first // _BLOCK
    inside = jnp.take_along_axis(own, mine[:, None, None], axis=1, mode="clip")[:, 0]
    here = (mine >= 0) & (mine < own.shape[1])
    inside = split.sum(jnp.where(here[:, None], inside, 0))
    return jnp.minimum(block * _BLOCK + _pick(inside, uniforms[:, 1]), vocabulary - 1)


def _pick(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """The entry in which `uniform` of the total weight falls."""
    cumulative = jnp.cumsum(weights, axis=-1)
    goal = uniform * cumulative[:, -1]
    index = jnp.sum(cumulative <= goal[:, None], axis=-1)
    return jnp.minimum(index, weights.shape[-1] - 1)


def _nucleus_edge(weights: jax.Array, top_p: jax.Array, split: Split) -> jax.Array:
    """`[B]`, a threshold that exactly the nucleus reaches.

    Bisects the bit patterns of float32, which are ordered as the positive values are,
    for the largest weight at and above which the mass still reaches `top_p`, until that
    weight is alone between the bounds: two would weigh twice the lower bound. Half of
    one is left to rounding; weights below some 1e-7 of the whole are lost in it.
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

    # Whatever is smaller adds up to less than half of what may be left out.
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
