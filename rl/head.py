"""The head: log-probability and entropy of tokens from hidden states.

Neither direction ever holds a `[tokens, vocabulary]` array. Scored positions are
brought together first, so that prompts and padding never meet the vocabulary, and are
then taken `chunk` at a time in a loop whose length is data: its cost follows the number
of scored tokens while its shapes do not. Each chunk meets the vocabulary a block at a
time, so that no temporary array grows with the vocabulary either.

Axes: R rows, T positions, D model width, V vocabulary, C tokens of a chunk, W words of
a block. Rows are split over the mesh's data and fsdp axes, the vocabulary over tensor.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

_ROWS = ("data", "fsdp")
_VOCAB = "tensor"
_BLOCK = 8192  # W; with chunks of 1,024 tokens a block of logits takes 32 MiB
_MASKED = -1e30


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def score_tokens(
    hidden: jax.Array,
    table: jax.Array,
    target_ids: jax.Array,
    mask: jax.Array,
    temperature: jax.Array,
    mesh: Mesh,
    chunk: int,
) -> tuple[jax.Array, jax.Array]:
    """Scores the tokens that `hidden` is to produce.

    Args:
      hidden: `[R, T, D]` in the compute dtype.
      table: `[V, D]` in the compute dtype.
      target_ids: int32 `[R, T]`, the token that each hidden state produces.
      mask: bool `[R, T]`; elsewhere both results are 0.
      temperature: scalar by which logits are divided.
      mesh: on which rows and vocabulary are split.
      chunk: C, tokens per device taken at a time.

    Returns:
      `log p(target)` and the entropy of p in nats, each float32 `[R, T]` (float64 for
      such inputs). Only the former has a gradient, to `hidden` and to `table`.
    """
    return _forward(hidden, table, target_ids, mask, temperature, mesh, chunk)[0]


def _forward(hidden, table, target_ids, mask, temperature, mesh, chunk):
    logprobs, entropy, logsumexp = jax.shard_map(
        functools.partial(_forward_shard, chunk=chunk),
        mesh=mesh,
        in_specs=(P(_ROWS), P(_VOCAB), P(_ROWS), P(_ROWS), P()),
        out_specs=(P(_ROWS), P(_ROWS), P(_ROWS)),
        check_vma=False,
    )(hidden, table, target_ids, mask, temperature)
    saved = (hidden, table, target_ids, mask, temperature, logsumexp)
    return (logprobs, entropy), saved


def _backward(mesh, chunk, saved, gradients):
    hidden, table, target_ids, mask, temperature, logsumexp = saved
    d_hidden, d_table = jax.shard_map(
        functools.partial(_backward_shard, chunk=chunk),
        mesh=mesh,
        in_specs=(P(_ROWS), P(_VOCAB), P(_ROWS), P(_ROWS), P(), P(_ROWS), P(_ROWS)),
        out_specs=(P(_ROWS), P(_VOCAB)),
        check_vma=False,
    )(hidden, table, target_ids, mask, temperature, logsumexp, gradients[0])
    return d_hidden, d_table, None, None, None


score_tokens.defvjp(_forward, _backward)


def _scored_first(mask: jax.Array, chunk: int) -> tuple[jax.Array, jax.Array]:
    """Flat indices with the masked-in ones first, and the number of chunks they fill.

    The order is padded to whole chunks with an index one past the end, which reads
    clip and writes drop.
    """
    flat = mask.reshape(-1)
    order = jnp.argsort(~flat, stable=True)
    count = jnp.sum(flat)
    order = jnp.where(jnp.arange(flat.size) < count, order, flat.size)
    order = jnp.pad(order, (0, -flat.size % chunk), constant_values=flat.size)
    return order, (count + chunk - 1) // chunk


def _logits(hidden, table, temperature):
    accumulate = jnp.promote_types(hidden.dtype, jnp.float32)
    product = jax.lax.dot_general(
        hidden, table, (((1,), (1,)), ((), ())), preferred_element_type=accumulate
    )
    return product / temperature.astype(accumulate)


def _over_vocabulary(visit, carry, vocab):
    """`visit(carry, start, size, fresh)` for each block; `fresh [W]` is False for words
    that an earlier block held, where the last block reaches back to be whole."""
    size = min(_BLOCK, vocab)
    if size == vocab:
        return visit(carry, 0, size, jnp.ones(size, bool))

    def body(i, carry):
        start = jnp.minimum(i * size, vocab - size)
        return visit(carry, start, size, start + jnp.arange(size) >= i * size)

    return jax.lax.fori_loop(0, -(-vocab // size), body, carry)


def _forward_shard(hidden, table, target_ids, mask, temperature, *, chunk):
    rows, width = mask.shape, hidden.shape[-1]
    vocab = table.shape[0]
    hidden, targets = hidden.reshape(-1, width), target_ids.reshape(-1)
    targets = targets - jax.lax.axis_index(_VOCAB) * vocab
    chunk = min(chunk, targets.size)
    order, chunks = _scored_first(mask, chunk)
    dtype = jnp.promote_types(hidden.dtype, jnp.float32)

    def body(i, results):
        at = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        part, target = (x.at[at].get(mode="clip") for x in (hidden, targets))

        def visit(carry, start, size, fresh):
            top, total, weighted, taken = carry
            words = jax.lax.dynamic_slice_in_dim(table, start, size)
            logits = _logits(part, words, temperature)
            hit = (start + jnp.arange(size) == target[:, None]) & fresh
            taken += jnp.sum(jnp.where(hit, logits, 0), axis=-1)
            logits = jnp.where(fresh, logits, _MASKED)
            new_top = jnp.maximum(top, jnp.max(logits, axis=-1))
            weights = jnp.exp(logits - new_top[:, None])
            keep = jnp.exp(top - new_top)
            total = total * keep + jnp.sum(weights, axis=-1)
            weighted = weighted * keep + jnp.sum(weights * logits, axis=-1)
            return new_top, total, weighted, taken

        zero = jnp.zeros(chunk, dtype)
        start = jnp.full(chunk, _MASKED, dtype), zero, zero, zero
        local, total, weighted, taken = _over_vocabulary(visit, start, vocab)
        top = jax.lax.pmax(local, _VOCAB)
        keep = jnp.exp(local - top)
        total, weighted, taken = jax.lax.psum(
            (total * keep, weighted * keep, taken), _VOCAB
        )
        logsumexp = top + jnp.log(total)
        found = taken - logsumexp, logsumexp - weighted / total, logsumexp
        return tuple(
            array.at[at].set(value, mode="drop")
            for array, value in zip(results, found, strict=True)
        )

    zeros = jnp.zeros(targets.size, dtype)
    results = jax.lax.fori_loop(0, chunks, body, (zeros, zeros, zeros))
    return tuple(array.reshape(rows) for array in results)


def _backward_shard(
    hidden, table, target_ids, mask, temperature, logsumexp, gradient, *, chunk
):
    shape, width = hidden.shape, hidden.shape[-1]
    vocab = table.shape[0]
    hidden, targets = hidden.reshape(-1, width), target_ids.reshape(-1)
    targets = targets - jax.lax.axis_index(_VOCAB) * vocab
    chunk = min(chunk, targets.size)
    order, chunks = _scored_first(mask, chunk)
    accumulate = jnp.promote_types(hidden.dtype, jnp.float32)
    logsumexp, gradient = logsumexp.reshape(-1), gradient.reshape(-1)

    def dot(a, b, contract):
        return jax.lax.dot_general(
            a, b, ((contract, (0,)), ((), ())), preferred_element_type=accumulate
        )

    def body(i, carry):
        d_hidden, d_table = carry
        at = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        part, target, total = (
            x.at[at].get(mode="clip") for x in (hidden, targets, logsumexp)
        )
        # Past the end of the scored tokens the gradient reads 0.
        scale = gradient.at[at].get(mode="fill", fill_value=0) / temperature

        def visit(carry, start, size, fresh):
            d_part, d_table = carry
            words = jax.lax.dynamic_slice_in_dim(table, start, size)
            probabilities = jnp.exp(_logits(part, words, temperature) - total[:, None])
            hit = start + jnp.arange(size) == target[:, None]
            d_logits = jnp.where(fresh, hit - probabilities, 0) * scale[:, None]
            d_logits = d_logits.astype(table.dtype)
            block = jax.lax.dynamic_slice_in_dim(d_table, start, size)
            block += dot(d_logits, part, (0,))
            d_table = jax.lax.dynamic_update_slice_in_dim(d_table, block, start, 0)
            return d_part + dot(d_logits, words, (1,)), d_table

        start = jnp.zeros(part.shape, accumulate), d_table
        d_part, d_table = _over_vocabulary(visit, start, vocab)
        return d_hidden.at[at].set(d_part.astype(d_hidden.dtype), mode="drop"), d_table

    d_hidden, d_table = jax.lax.fori_loop(
        0, chunks, body, (jnp.zeros_like(hidden), jnp.zeros(table.shape, accumulate))
    )
    d_hidden = jax.lax.psum(d_hidden, _VOCAB).reshape(shape)
    # One reduction after the loop; left to the partitioner it would be one per chunk.
    return d_hidden, jax.lax.psum(d_table, _ROWS).astype(table.dtype)
