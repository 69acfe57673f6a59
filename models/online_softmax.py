"""Computes the statistics of a softmax in one pass over its scores.

The pass updates a maximum, and sums that are relative to the maximum (Milakov and
Gimelshein, arXiv 1805.02867). On GPU, XLA compiles this to one kernel that reads the
scores from memory once instead of twice. On CPU two passes are faster, because the
merge is not vectorized.
"""

import jax
import jax.numpy as jnp

LEAST = float(jnp.finfo(jnp.float32).min)
"""The lowest finite float32. With -inf, merging two empty parts would give NaN."""
Statistics = tuple[jax.Array, jax.Array, jax.Array]


def online_softmax(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the maximum and the sum of `exp(scores - maximum)` over the last axis.

    The scores must be float32 and at least `LEAST`.
    """
    top, total, _ = _reduce(scores, jnp.ones_like(scores), jnp.zeros_like(scores))
    return top, total


def online_softmax_mean(scores: jax.Array) -> Statistics:
    """Returns the maximum, and two sums over the last axis.

    With `weights = exp(scores - maximum)`, they are the sums of `weights` and of
    `scores * weights`. The scores must be as in `online_softmax`.
    """
    return _reduce(scores, jnp.ones_like(scores), scores)


def merge(one: Statistics, other: Statistics) -> Statistics:
    """Merges the results of `online_softmax_mean` for two parts of the scores."""
    (a_top, a_total, a_sum), (b_top, b_total, b_sum) = one, other
    # One of the two factors exp(its top - top) is 1.
    factor = jnp.exp(-jnp.abs(a_top - b_top))
    a = jnp.where(a_top < b_top, factor, 1)
    b = jnp.where(a_top < b_top, 1, factor)
    top = jnp.maximum(a_top, b_top)
    return top, a_total * a + b_total * b, a_sum * a + b_sum * b


def _reduce(top, total, weighted):
    start = top.dtype.type(LEAST), top.dtype.type(0), top.dtype.type(0)
    return jax.lax.reduce((top, total, weighted), start, merge, (top.ndim - 1,))
