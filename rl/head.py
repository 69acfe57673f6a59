"""The head: log-probability and entropy of tokens from hidden states.

Neither direction ever holds a `[tokens, vocabulary]` array. Scored positions are
brought together first, so that prompts and padding never meet the vocabulary, and are
then taken `chunk` at a time in a loop whose length is data: its cost follows the number
of scored tokens while its shapes do not.

Axes: R rows, T positions, D model width, V vocabulary, C tokens of a chunk. Rows are
split over the mesh's data and fsdp axes, the vocabulary over tensor.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

_ROWS = ("data", "fsdp")
_VOCAB = "tensor"


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


def _local_targets(targets, vocab):
    """Target ids within this device's part of the vocabulary, and whether they are."""
    local = targets - jax.lax.axis_index(_VOCAB) * vocab
    return local, (local >= 0) & (local < vocab)


def _forward_shard(hidden, table, target_ids, mask, temperature, *, chunk):
    rows, width = mask.shape, hidden.shape[-1]
    hidden, targets = hidden.reshape(-1, width), target_ids.reshape(-1)
    chunk = min(chunk, targets.size)
    order, chunks = _scored_first(mask, chunk)
    dtype = jnp.promote_types(hidden.dtype, jnp.float32)

    def body(i, results):
        at = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        logits = _logits(hidden.at[at].get(mode="clip"), table, temperature)
        top = jax.lax.pmax(jnp.max(logits, axis=-1), _VOCAB)
        weights = jnp.exp(logits - top[:, None])
        total = jax.lax.psum(jnp.sum(weights, axis=-1), _VOCAB)
        mean = jax.lax.psum(jnp.sum(weights * logits, axis=-1), _VOCAB) / total
        local, inside = _local_targets(targets.at[at].get(mode="clip"), table.shape[0])
        taken = jnp.take_along_axis(logits, local[:, None], axis=-1, mode="clip")[:, 0]
        taken = jax.lax.psum(jnp.where(inside, taken, 0), _VOCAB)
        logsumexp = top + jnp.log(total)
        return tuple(
            array.at[at].set(value, mode="drop", unique_indices=False)
            for array, value in zip(
                results, (taken - logsumexp, logsumexp - mean, logsumexp), strict=True
            )
        )

    zeros = jnp.zeros(targets.size, dtype)
    results = jax.lax.fori_loop(0, chunks, body, (zeros, zeros, zeros))
    return tuple(array.reshape(rows) for array in results)


def _backward_shard(
    hidden, table, target_ids, mask, temperature, logsumexp, gradient, *, chunk
):
    shape, width = hidden.shape, hidden.shape[-1]
    hidden, targets = hidden.reshape(-1, width), target_ids.reshape(-1)
    chunk = min(chunk, targets.size)
    order, chunks = _scored_first(mask, chunk)
    accumulate = jnp.promote_types(hidden.dtype, jnp.float32)
    logsumexp, gradient = logsumexp.reshape(-1), gradient.reshape(-1)

    def body(i, carry):
        d_hidden, d_table = carry
        at = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        part = hidden.at[at].get(mode="clip")
        # Past the end of the scored tokens the gradient reads 0.
        scale = gradient.at[at].get(mode="fill", fill_value=0) / temperature
        logits = _logits(part, table, temperature)
        probabilities = jnp.exp(logits - logsumexp.at[at].get(mode="clip")[:, None])
        local, inside = _local_targets(targets.at[at].get(mode="clip"), table.shape[0])
        hit = (jnp.arange(table.shape[0]) == local[:, None]) & inside[:, None]
        d_logits = (hit - probabilities) * scale[:, None]
        d_logits = d_logits.astype(table.dtype)
        d_part = jax.lax.dot_general(
            d_logits, table, (((1,), (0,)), ((), ())), preferred_element_type=accumulate
        )
        d_table += jax.lax.dot_general(
            d_logits, part, (((0,), (0,)), ((), ())), preferred_element_type=accumulate
        )
        return d_hidden.at[at].set(d_part.astype(d_hidden.dtype), mode="drop"), d_table

    d_hidden, d_table = jax.lax.fori_loop(
        0, chunks, body, (jnp.zeros_like(hidden), jnp.zeros(table.shape, accumulate))
    )
    d_hidden = jax.lax.psum(d_hidden, _VOCAB).reshape(shape)
    # One reduction after the loop; left to the partitioner it would be one per chunk.
    return d_hidden, jax.lax.psum(d_table, _ROWS).astype(table.dtype)
