"""Drawing tokens from logits: exact at top_p = 1, and without sorting at any.

Axes: B rows, V vocabulary.
"""

import jax
import jax.numpy as jnp

_BLOCK = 128


def draw(
    logits: jax.Array, uniforms: jax.Array, temperature: jax.Array, top_p: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draws one token per row by inverse CDF.

    One Gumbel per vocabulary entry costs more than a decode step's matrix products; an
    inverse CDF needs two uniforms per row: one picks a block of 128 entries, the other
    an entry inside it, so that tails keep float32's relative precision.

    Args:
      logits: float32 `[B, V]`.
      uniforms: float32 `[B, 2]` in [0, 1).
      temperature: scalar; 0 takes the largest logit.
      top_p: scalar in (0, 1]; the smallest set of most likely tokens whose mass
        reaches it is kept, ties at its edge with it.

    Returns:
      Token ids int32 `[B]` and their log-probabilities in the distribution that they
      were drawn from (for greedy: in the softmax of the logits).
    """
    greedy = temperature == 0
    scaled = logits / jnp.where(greedy, 1.0, temperature)
    top = jnp.max(scaled, axis=-1, keepdims=True)
    weights = jnp.exp(scaled - top)
    edge = jax.lax.cond(
        greedy | (top_p >= 1),
        lambda weights, _: jnp.zeros_like(weights[:, 0]),
        _nucleus_edge,
        weights,
        top_p,
    )
    kept = jnp.where(weights >= edge[:, None], weights, 0)
    token = _inverse_cdf(kept, uniforms)
    # Rounding at the very end of a CDF may name an entry of no weight.
    best_instead = greedy | (_at(kept, token) <= 0)
    token = jax.lax.cond(
        jnp.any(best_instead),
        lambda: jnp.where(best_instead, _first_best(scaled, top), token),
        lambda: token,
    )
    logprob = _at(scaled - top, token) - jnp.log(jnp.sum(kept, axis=-1))
    return token.astype(jnp.int32), logprob


def _first_best(scores: jax.Array, best: jax.Array) -> jax.Array:
    """The argmax by comparison, or the last entry where nothing compares (NaN).

    XLA's own argmax looks at one entry at a time on a CPU.
    """
    entries = jnp.arange(scores.shape[-1])
    return jnp.min(jnp.where(scores == best, entries, scores.shape[-1] - 1), axis=-1)


def _at(array, index):
    return jnp.take_along_axis(array, index[:, None], axis=-1)[:, 0]


def _inverse_cdf(weights: jax.Array, uniforms: jax.Array) -> jax.Array:
    rows, size = weights.shape
    blocks = jnp.pad(weights, ((0, 0), (0, -size % _BLOCK)))
    blocks = blocks.reshape(rows, -1, _BLOCK)
    block = _pick(jnp.sum(blocks, axis=-1), uniforms[:, 0])
    inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return jnp.minimum(block * _BLOCK + _pick(inside, uniforms[:, 1]), size - 1)


def _pick(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """The entry in which `uniform` of the total weight falls."""
    cumulative = jnp.cumsum(weights, axis=-1)
    goal = uniform * cumulative[:, -1]
    index = jnp.sum(cumulative <= goal[:, None], axis=-1)
    return jnp.minimum(index, weights.shape[-1] - 1)


def _nucleus_edge(weights: jax.Array, top_p: jax.Array) -> jax.Array:
    """`[B]`, a threshold that exactly the nucleus reaches.

    Bisects the bit patterns of float32, which are ordered as the positive values are,
    for the largest weight at and above which the mass still reaches `top_p`, until that
    weight is alone between the bounds: two would weigh twice the lower bound. Half of
    one is left to rounding; weights below some 1e-7 of the whole are lost in it.
    """
    total = jnp.sum(weights, axis=-1)
    goal = top_p * total

    def undecided(bounds):
        low, high, reached, short = bounds
        return jnp.any((low < high) & (reached - short >= 1.5 * _value(low)))

    def halve(bounds):
        low, high, reached, short = bounds
        middle = low + (high - low + 1) // 2
        mass = jnp.sum(
            jnp.where(weights >= _value(middle)[:, None], weights, 0), axis=-1
        )
        up = mass >= goal
        return (
            jnp.where(up, middle, low),
            jnp.where(up, high, middle - 1),
            jnp.where(up, mass, reached),
            jnp.where(up, short, mass),
        )

    # Whatever is smaller adds up to less than half of what may be left out.
    floor = (1 - top_p) * total / (2 * weights.shape[-1])
    low = jax.lax.bitcast_convert_type(floor, jnp.int32)
    high = jax.lax.bitcast_convert_type(jnp.ones_like(floor), jnp.int32)
    bounds = low, high, total, jnp.zeros_like(total)
    return _value(jax.lax.while_loop(undecided, halve, bounds)[0])


def _value(bits: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(bits, jnp.float32)
