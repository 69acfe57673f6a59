"""Computes block-sparse attention over packed rows in plain JAX.

A block of queries skips the blocks of keys that it cannot see (`visible_pairs`). As in
flash attention (arXiv 2205.14135), the forward and backward passes hold the scores of
one pair of blocks at a time.

Axes: B rows, T positions, N query heads, K kv heads, H head width; J blocks of C
positions in a row, Q = N/K * C queries of a block that share a kv head.
"""

import jax
import jax.numpy as jnp

_MASKED = -1e30  # finite, so that a fully masked query does not become NaN
_PADDING = jnp.iinfo(jnp.int32).max


def block_attention(q, k, v, segment_ids, prefix_ids, block: int) -> jax.Array:
    """Implements `models.attention.segment_attention` with blocks of C = `block`."""
    length, heads, width = q.shape[1:]

    def cut(x):
        """Pads `[B, T, ...]` with zeros, and reshapes it to `[B, J, C, ...]`."""
        x = jnp.pad(x, ((0, 0), (0, -length % block), *[(0, 0)] * (x.ndim - 2)))
        return x.reshape(len(x), -1, block, *x.shape[2:])

    ids, prefixes = cut(segment_ids), cut(prefix_ids)
    flat_ids, flat_prefixes = (x.reshape(len(x), -1) for x in (ids, prefixes))
    visible, _ = visible_pairs(flat_ids, flat_prefixes, block, block)
    # Per query block: all key blocks, visible ones first; how many are visible.
    order = jnp.argsort(~visible, axis=-1, stable=True).astype(jnp.int32)
    rows = ids, prefixes, order, jnp.sum(visible, axis=-1, dtype=jnp.int32)

    grouped = cut(q.reshape(*q.shape[:2], k.shape[2], -1, width))
    grouped = grouped.transpose(0, 1, 3, 4, 2, 5)
    queries = grouped.reshape(*grouped.shape[:3], -1, width)
    out = _attend(queries, cut(k).swapaxes(2, 3), cut(v).swapaxes(2, 3), rows)
    out = out.reshape(grouped.shape).transpose(0, 1, 4, 2, 3, 5)
    return out.reshape(len(q), -1, heads, width)[:, :length]


@jax.custom_vjp
def _attend(q, k, v, rows):
    """Attends from `q [B, J, K, Q, H]` to k and v `[B, J, K, C, H]`."""
    return _forward(q, k, v, rows)[0]


def _forward(q, k, v, rows):
    out, logsumexp = jax.lax.map(_forward_row, (q * _scale(q), k, v, *rows))
    out = out.astype(v.dtype)
    return out, (q, k, v, rows, out, logsumexp)


def _backward(saved, d_out):
    q, k, v, rows, out, logsumexp = saved
    accumulate = _accumulate(q)
    shift = jnp.sum(out.astype(accumulate) * d_out.astype(accumulate), axis=-1)
    inputs = q * _scale(q), k, v, d_out, shift, logsumexp, *rows
    d_q, d_k, d_v = jax.lax.map(_backward_row, inputs)
    d_q = (d_q * _scale(q)).astype(q.dtype)
    return d_q, d_k.astype(k.dtype), d_v.astype(v.dtype), None


_attend.defvjp(_forward, _backward)


def _scale(q: jax.Array) -> jax.Array:
    return jnp.asarray(q.shape[-1] ** -0.5, q.dtype)


def _accumulate(x: jax.Array):
    return jnp.promote_types(x.dtype, jnp.float32)


def _dot(equation, a, b):
    return jnp.einsum(equation, a, b, preferred_element_type=_accumulate(a))


def _scores(q, k, i, j, ids, prefixes):
    """Computes masked scores `[K, Q, C]` of query block i and key block j."""
    scores = _dot("kqh,kch->kqc", q[i], k[j])
    block = ids.shape[1]
    at = jnp.arange(block)
    seen = (ids[i][:, None] == ids[j]) | (prefixes[i][:, None] == ids[j])
    seen &= (i - j) * block + at[:, None] >= at
    seen = jnp.tile(seen, (q.shape[2] // block, 1))
    return jnp.where(seen, scores, _MASKED)


def _forward_row(row):
    """Returns the output `[J, K, Q, H]` and log-sum-exp `[J, K, Q]` of one row."""
    q, k, v, ids, prefixes, order, count = row

    def of_block(i):
        def visit(n, carry):
            top, total, mixed = carry
            j = order[i, n]
            scores = _scores(q, k, i, j, ids, prefixes)
            new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
            weights = jnp.exp(scores - new_top[..., None])
            keep = jnp.exp(top - new_top)
            total = total * keep + jnp.sum(weights, axis=-1)
            part = _dot("kqc,kch->kqh", weights.astype(v.dtype), v[j])
            return new_top, total, mixed * keep[..., None] + part

        zeros = jnp.zeros(q.shape[1:], _accumulate(q))
        start = jnp.full(q.shape[1:3], _MASKED, zeros.dtype), zeros[..., 0], zeros
        top, total, mixed = jax.lax.fori_loop(0, count[i], visit, start)
        return mixed / total[..., None], top + jnp.log(total)

    return jax.lax.map(of_block, jnp.arange(len(q)))


def _backward_row(row):
    """Returns one row's gradients of q `[J, K, Q, H]`, k and v `[J, K, C, H]`."""
    q, k, v, d_out, shift, logsumexp, ids, prefixes, order, count = row

    def of_block(carry, i):
        def visit(n, carry):
            d_q, d_k, d_v = carry
            j = order[i, n]
            scores = _scores(q, k, i, j, ids, prefixes)
            weights = jnp.exp(scores - logsumexp[i][..., None])
            d_weights = _dot("kqh,kch->kqc", d_out[i], v[j])
            d_scores = weights * (d_weights - shift[i][..., None])
            weights = weights.astype(v.dtype)
            d_scores = d_scores.astype(q.dtype)
            d_v_j = _dot("kqc,kqh->kch", weights, d_out[i])
            d_k_j = _dot("kqc,kqh->kch", d_scores, q[i])
            d_v = d_v.at[j].add(d_v_j, unique_indices=True)
            d_k = d_k.at[j].add(d_k_j, unique_indices=True)
            return d_q + _dot("kqc,kch->kqh", d_scores, k[j]), d_k, d_v

        zero = jnp.zeros(q.shape[1:], _accumulate(q))
        d_q, *carry = jax.lax.fori_loop(0, count[i], visit, (zero, *carry))
        return tuple(carry), d_q

    zeros = jnp.zeros(k.shape, _accumulate(q))
    (d_k, d_v), d_q = jax.lax.scan(of_block, (zeros, zeros), jnp.arange(len(q)))
    return d_q, d_k, d_v


def visible_pairs(
    segment_ids: jax.Array, prefix_ids: jax.Array, q_block: int, k_block: int
) -> tuple[jax.Array, jax.Array]:
    """Returns which (query block, key block) pairs are visible, and which need no mask.

    Both arrays are bool `[B, I, J]`, for I query blocks and J key blocks. The block
    sizes must divide T.

    In a pair that is not visible, no query attends to a key. A pair is visible if its
    first key is not after its last query, and if the range of the keys' segment ids
    overlaps the range of the queries' segment ids or the range of their prefix ids. Ids
    of 0 are ignored. A pair with common positions is always visible and needs a mask.
    Another visible pair needs no mask if all its keys have one segment id, and all its
    queries have this id as segment id, or all have it as prefix id.
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
