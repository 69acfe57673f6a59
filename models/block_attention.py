"""Computes block-sparse attention over packed rows in plain JAX.

A block of queries skips blocks of keys whose segments are all before or after its own.
So the cost of a row depends on the lengths of its segments, not on the square of its
length. As in flash attention (arXiv 2205.14135), forward and backward pass hold the
scores of one pair of blocks at a time.

Axes: B rows, T positions, N query heads, K kv heads, H head width; J blocks of C
positions in a row, Q = N/K * C queries of a block that share a kv head.
"""

import functools

import jax
import jax.numpy as jnp

_MASKED = -1e30  # finite, so that a fully masked query does not become NaN
_PADDING = jnp.iinfo(jnp.int32).max


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def block_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    segment_ids: jax.Array,
    prefix_ids: jax.Array,
    block: int,
) -> jax.Array:
    """Implements `models.attention.segment_attention` with blocks of C = `block`."""
    return _forward(q, k, v, segment_ids, prefix_ids, block)[0]


def _forward(q, k, v, segment_ids, prefix_ids, block):
    layout = _Layout(q, k, segment_ids, prefix_ids, block)
    blocks = layout.queries(q * _scale(q)), layout.keys(k), layout.keys(v)
    out, logsumexp = jax.lax.map(layout.forward_row, (*blocks, *layout.rows))
    out = layout.restore_queries(out).astype(v.dtype)
    return out, (q, k, v, segment_ids, prefix_ids, out, logsumexp)


def _backward(block, saved, d_out):
    q, k, v, segment_ids, prefix_ids, out, logsumexp = saved
    layout = _Layout(q, k, segment_ids, prefix_ids, block)
    accumulate = jnp.promote_types(q.dtype, jnp.float32)
    shift = jnp.sum(out.astype(accumulate) * d_out.astype(accumulate), axis=-1)
    blocks = (
        layout.queries(q * _scale(q)),
        layout.keys(k),
        layout.keys(v),
        layout.queries(d_out),
        layout.queries(shift[..., None])[..., 0],
        logsumexp,
    )
    d_q, d_k, d_v = jax.lax.map(layout.backward_row, (*blocks, *layout.rows))
    return (
        (layout.restore_queries(d_q) * _scale(q)).astype(q.dtype),
        layout.restore_keys(d_k).astype(k.dtype),
        layout.restore_keys(d_v).astype(v.dtype),
        None,
        None,
    )


block_attention.defvjp(_forward, _backward)


def _scale(q: jax.Array) -> jax.Array:
    return jnp.asarray(q.shape[-1] ** -0.5, q.dtype)


class _Layout:
    """Divides rows into blocks, and computes attention over pairs of blocks."""

    def __init__(self, q, k, segment_ids, prefix_ids, block):
        self._length = q.shape[1]
        self._block = block
        self._blocks = -(-self._length // block)
        self._kv_heads = k.shape[2]
        self._sharing = q.shape[2] // self._kv_heads
        self._accumulate = jnp.promote_types(q.dtype, jnp.float32)
        ids, prefixes = self._split(segment_ids), self._split(prefix_ids)
        flat_ids, flat_prefixes = (x.reshape(len(x), -1) for x in (ids, prefixes))
        visible, _ = visible_pairs(flat_ids, flat_prefixes, block, block)
        # Per query block: all key blocks, visible ones first; how many are visible.
        order = jnp.argsort(~visible, axis=-1, stable=True).astype(jnp.int32)
        self.rows = ids, prefixes, order, jnp.sum(visible, axis=-1, dtype=jnp.int32)

    def _split(self, x):
        """Reshapes `[B, T, ...] -> [B, J, C, ...]`, padded with 0."""
        pad = self._blocks * self._block - self._length
        x = jnp.pad(x, ((0, 0), (0, pad), *[(0, 0)] * (x.ndim - 2)))
        return x.reshape(x.shape[0], self._blocks, self._block, *x.shape[2:])

    def queries(self, x):
        """Reshapes `[B, T, N, H] -> [B, J, K, Q, H]`."""
        x = self._split(x)
        x = x.reshape(*x.shape[:3], self._kv_heads, self._sharing, -1)
        x = x.transpose(0, 1, 3, 4, 2, 5)
        return x.reshape(*x.shape[:3], -1, x.shape[-1])

    def restore_queries(self, x):
        """Reverses `queries`."""
        b, j, k, _, h = x.shape
        x = x.reshape(b, j, k, self._sharing, self._block, h)
        x = x.transpose(0, 1, 4, 2, 3, 5).reshape(b, j * self._block, -1, h)
        return x[:, : self._length]

    def keys(self, x):
        """Reshapes `[B, T, K, H] -> [B, J, K, C, H]`."""
        return self._split(x).transpose(0, 1, 3, 2, 4)

    def restore_keys(self, x):
        """Reverses `keys`."""
        x = x.transpose(0, 1, 3, 2, 4)
        return x.reshape(x.shape[0], -1, *x.shape[3:])[:, : self._length]

    def _scores(self, q, k, i, j, ids, prefixes):
        """Computes masked scores `[K, Q, C]` of query block i and key block j."""
        scores = self._dot("kqh,kch->kqc", q, k)
        offset = (i - j) * self._block
        at = jnp.arange(self._block)
        seen = (ids[i][:, None] == ids[j]) | (prefixes[i][:, None] == ids[j])
        seen &= offset + at[:, None] >= at
        seen = jnp.tile(seen, (self._sharing, 1))
        return jnp.where(seen, scores, _MASKED)

    def _dot(self, equation, a, b):
        return jnp.einsum(equation, a, b, preferred_element_type=self._accumulate)

    def forward_row(self, row):
        """Returns the output `[J, K, Q, H]` and log-sum-exp `[J, K, Q]` of one row."""
        q, k, v, ids, prefixes, order, count = row

        def of_block(i):
            def visit(n, carry):
                top, total, mixed = carry
                j = order[i, n]
                scores = self._scores(q[i], k[j], i, j, ids, prefixes)
                new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
                weights = jnp.exp(scores - new_top[..., None])
                keep = jnp.exp(top - new_top)
                total = total * keep + jnp.sum(weights, axis=-1)
                part = self._dot("kqc,kch->kqh", weights.astype(v.dtype), v[j])
                return new_top, total, mixed * keep[..., None] + part

            shape = q.shape[1:3]
            start = (
                jnp.full(shape, _MASKED, self._accumulate),
                jnp.zeros(shape, self._accumulate),
                jnp.zeros(q.shape[1:], self._accumulate),
            )
            top, total, mixed = jax.lax.fori_loop(0, count[i], visit, start)
            return mixed / total[..., None], top + jnp.log(total)

        return jax.lax.map(of_block, jnp.arange(self._blocks))

    def backward_row(self, row):
        """Returns one row's gradients of q `[J, K, Q, H]`, k and v `[J, K, C, H]`."""
        q, k, v, d_out, shift, logsumexp, ids, prefixes, order, count = row

        def of_block(carry, i):
            def visit(n, carry):
                d_q, d_k, d_v = carry
                j = order[i, n]
                scores = self._scores(q[i], k[j], i, j, ids, prefixes)
                weights = jnp.exp(scores - logsumexp[i][..., None])
                d_weights = self._dot("kqh,kch->kqc", d_out[i], v[j])
                d_scores = weights * (d_weights - shift[i][..., None])
                weights = weights.astype(v.dtype)
                d_scores = d_scores.astype(q.dtype)
                d_v_j = self._dot("kqc,kqh->kch", weights, d_out[i])
                d_k_j = self._dot("kqc,kqh->kch", d_scores, q[i])
                d_v = d_v.at[j].add(d_v_j, unique_indices=True)
                d_k = d_k.at[j].add(d_k_j, unique_indices=True)
                return d_q + self._dot("kqc,kch->kqh", d_scores, k[j]), d_k, d_v

            zero = jnp.zeros(q.shape[1:], self._accumulate)
            d_q, *carry = jax.lax.fori_loop(0, count[i], visit, (zero, *carry))
            return tuple(carry), d_q

        zeros = jnp.zeros(k.shape, self._accumulate)
        blocks = jnp.arange(self._blocks)
        (d_k, d_v), d_q = jax.lax.scan(of_block, (zeros, zeros), blocks)
        return d_q, d_k, d_v


def visible_pairs(
    segment_ids: jax.Array, prefix_ids: jax.Array, q_block: int, k_block: int
) -> tuple[jax.Array, jax.Array]:
    """Returns which pairs of a query block and a key block are visible.

    Segment ids ascend along a row, so a block's ids without 0 span an interval. A pair
    is visible if its first key is not after its last query, and the interval of its
    keys' ids overlaps that of its queries' segment ids or prefix ids. A pair with
    common positions is always visible.

    The block sizes are divisors of T. The second array `[B, I, J]`, for I query blocks
    and J key blocks, is true for the visible pairs that need no mask, because all
    queries attend to all keys by segment, or all by prefix.
    """

    def cut(x, block):
        return x.reshape(len(x), -1, block)

    def interval(x):
        real = jnp.where(x == 0, _PADDING, x)
        return jnp.min(real, axis=-1), jnp.max(x, axis=-1)

    ids, prefixes = cut(segment_ids, q_block), cut(prefix_ids, q_block)
    keys = cut(segment_ids, k_block)
    low_key, high_key = interval(keys)

    def meets(x):
        low, high = (of[..., None] for of in interval(x))
        return (low <= high_key[:, None]) & (low_key[:, None] <= high)

    def same(x):
        low, high = (of(x, axis=-1)[..., None] for of in (jnp.min, jnp.max))
        return (low == high_key[:, None]) & (high == jnp.min(keys, axis=-1)[:, None])

    q_start = jnp.arange(ids.shape[1])[:, None] * q_block
    k_start = jnp.arange(keys.shape[1]) * k_block
    before = k_start < q_start + q_block
    # A block of padding visits itself, so that its unused result is finite.
    own = before & (q_start < k_start + k_block)
    visible = ((meets(ids) | meets(prefixes)) & before) | own
    return visible, visible & ~own & (same(ids) | same(prefixes))
