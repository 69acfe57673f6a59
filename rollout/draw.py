"""Drawing tokens from logits: exact at top_p = 1, and without sorting at any.

Axes: B rows, V vocabulary.
"""

import jax
import jax.numpy as jnp

_BLOCK = 128
_BITS = 31  # a positive float32 orders as its bits do


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
    kept = jax.lax.cond(greedy | (top_p >= 1), lambda w, _: w, _nucleus, weights, top_p)
    token = _inverse_cdf(kept, uniforms)
    # Rounding at the very end of a CDF may name an entry of no weight.
    best_instead = greedy | (_at(kept, token) <= 0)
    token = jax.lax.cond(
        jnp.any(best_instead),
        lambda: jnp.where(best_instead, jnp.argmax(logits, axis=-1), token),
        lambda: token,
    )
    logprob = _at(scaled - top, token) - jnp.log(jnp.sum(kept, axis=-1))
    return token.astype(jnp.int32), logprob


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


def _nucleus(weights: jax.Array, top_p: jax.Array) -> jax.Array:
    """Zeroes what lies outside the nucleus.

    Bisects, over the bit patterns of float32, for the largest threshold above which
    the mass still reaches `top_p`.
    """
    goal = top_p * jnp.sum(weights, axis=-1)

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low + 1) // 2
        threshold = jax.lax.bitcast_convert_type(middle, jnp.float32)
        mass = jnp.sum(jnp.where(weights >= threshold[:, None], weights, 0), axis=-1)
        reached = mass >= goal
        return jnp.where(reached, middle, low), jnp.where(reached, high, middle - 1)

    one = jax.lax.bitcast_convert_type(jnp.float32(1), jnp.int32)
    low = jnp.zeros(weights.shape[0], jnp.int32)
    low, _ = jax.lax.fori_loop(0, _BITS, halve, (low, jnp.full_like(low, one)))
    threshold = jax.lax.bitcast_convert_type(low, jnp.float32)
    return jnp.where(weights >= threshold[:, None], weights, 0)
