"""Computes log-probabilities and entropies of tokens from hidden states.

If the vocabulary exceeds one block, neither the forward nor the backward pass holds a
`[tokens, vocabulary]` array or gathers a whole sharded table. Steps of both passes:

1. Positions in the mask are sorted to the front.
2. A loop visits the vocabulary in blocks. It gathers the columns of the next block
   while it computes with the current one.
3. For each block, an inner loop visits the positions in chunks. It stops after those in
   the mask, so it skips prompts and padding. On a GPU it visits all positions, because
   the host would wait for each iteration of a loop of unknown length.

Axes: R rows, T positions, D model width, V vocabulary, W vocabulary entries of a block.
"""

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from models.embedding import column_axes
from models.online_softmax import merge, online_softmax_mean
from sharding.mesh import platform
from sharding.rules import mesh_axes, spec

# Values of W. With 1,024 tokens per chunk, the logits of a block take 16 MiB (64 MiB on
# a GPU).
BLOCK, GPU_BLOCK = 4096, 16384
_MASKED = -1e30
_put = jax.lax.dynamic_update_slice_in_dim


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def score_tokens(
    hidden: Float[jax.Array, "R T D"],
    table: Float[jax.Array, "V D"],
    target_ids: Int[jax.Array, "R T"],
    mask: Bool[jax.Array, "R T"],
    temperature: Float[jax.Array, ""],
    mesh: Mesh,
    chunk: int,
) -> tuple[Float[jax.Array, "R T"], Float[jax.Array, "R T"]]:
    """Computes `log p(target)` and the entropy of p, in nats, at each position.

    Here p is `softmax(hidden @ table.T / temperature)`. Both results are 0 outside the
    mask. They are float32 (float64 for float64 inputs), and differentiable in `hidden`
    and `table`. The backward pass skips the entropy if the loss does not depend on it.

    Args:
      hidden: hidden states in the compute dtype.
      table: output embeddings, cast to the compute dtype block by block.
      target_ids: token that each hidden state predicts.
      chunk: number of tokens per device that are processed at a time.
    """
    return _forward(hidden, table, target_ids, mask, temperature, mesh, chunk)[0]


def _forward_of(*arguments):
    arrays, static = arguments[:-2], arguments[-2:]
    return _forward(*(x.value for x in arrays), *static)


@jax.named_scope("head")
def _forward(hidden, table, target_ids, mask, temperature, mesh, chunk):
    rows, of_table = spec("batch"), spec("vocab", "embed")
    logprobs, entropy, logsumexp = jax.shard_map(
        functools.partial(_forward_shard, chunk=chunk, gpu=platform(mesh) == "gpu"),
        mesh=mesh,
        in_specs=(rows, of_table, rows, rows, spec()),
        out_specs=(rows, rows, rows),
        check_vma=False,
    )(hidden, table, target_ids, mask, temperature)
    saved = (hidden, table, target_ids, mask, temperature, logsumexp, entropy)
    return (logprobs, entropy), saved


@jax.named_scope("head")
def _backward(mesh, chunk, saved, gradients):
    *inputs, entropy = saved
    of_logprobs, of_entropy = gradients
    if isinstance(of_logprobs, SymbolicZero):
        of_logprobs = jnp.zeros(of_logprobs.shape, of_logprobs.dtype)
    # Known at trace time: most losses do not depend on the entropy.
    with_entropy = not isinstance(of_entropy, SymbolicZero)
    by_entropy = (entropy, of_entropy) if with_entropy else ()
    rows, of_table = spec("batch"), spec("vocab", "embed")
    of_inputs = [rows, of_table, rows, rows, spec(), rows]
    d_hidden, d_table = jax.shard_map(
        functools.partial(_backward_shard, chunk=chunk, gpu=platform(mesh) == "gpu"),
        mesh=mesh,
        in_specs=(of_inputs, rows, rows),
        out_specs=(rows, of_table),
        check_vma=False,
    )(inputs, of_logprobs, by_entropy)
    return d_hidden, d_table, None, None, None


score_tokens.defvjp(_forward_of, _backward, symbolic_zeros=True)


def _scored_first(hidden, table, target_ids, mask, chunk, gpu):
    """Sorts the positions of the mask to the front, and divides them into chunks."""
    targets = target_ids.reshape(-1)  # relative to the device's first vocabulary entry
    targets -= jax.lax.axis_index(mesh_axes("vocab")) * table.shape[0]
    chunk = min(chunk, targets.size)
    flat = mask.reshape(-1)
    count = jnp.sum(flat)
    order = jnp.pad(jnp.argsort(~flat, stable=True), (0, -flat.size % chunk))
    number = jnp.arange(order.size)
    # Indices outside the mask are distinct and past the end: gathers clip or fill them,
    # and scatters drop them.
    order = jnp.where(number < count, order, flat.size + number)
    chunks = order.size // chunk if gpu else (count + chunk - 1) // chunk
    hidden = hidden.reshape(-1, hidden.shape[-1]).at[order].get(mode="clip")
    return hidden, targets.at[order].get(mode="clip"), order, chunk, chunks


def _in_place(values, order, size):
    """Reverses the sorting of `_scored_first`; the result is 0 outside the mask."""
    zeros = jnp.zeros((size, *values.shape[1:]), values.dtype)
    return zeros.at[order].set(values, mode="drop", unique_indices=True)


def _logits(hidden, words, temperature, gpu):
    accumulate = jnp.promote_types(hidden.dtype, jnp.float32)
    product = jax.lax.dot_general(
        hidden, words, (((1,), (1,)), ((), ())), preferred_element_type=accumulate
    )
    if gpu:
        # Without the barrier, XLA fuses the division into the product, which then
        # cannot use cuBLAS. With it, the division is fused into what follows.
        product = jax.lax.optimization_barrier(product)
    return product / temperature.astype(accumulate)


def _scattered(whole: jax.Array) -> jax.Array:
    """Sums the gradient `[W, D]` of a block; returns this device's columns of it."""
    columns = column_axes()
    if jax.lax.axis_size(columns) == 1:
        return whole
    return jax.lax.psum_scatter(whole, columns, scatter_dimension=1, tiled=True)


def _over_vocabulary(visit, carry, table, dtype, gpu):
    """Computes `carry = visit(carry, start, words)` for each block of the table.

    Returns the last carry. `start` is the index of the block's first row in `table`,
    this device's shard. `words [W, D]` are the block's embeddings with all columns.
    """
    size = min(GPU_BLOCK if gpu else BLOCK, len(table))
    blocks, rest = divmod(len(table), size)
    columns = column_axes()

    def fetch(start, size):
        words = jax.lax.dynamic_slice_in_dim(table, start, size).astype(dtype)
        if jax.lax.axis_size(columns) == 1:
            # XLA on CPU would transpose the table and back even for an axis of size 1.
            return words
        return jax.lax.all_gather(words, columns, axis=1, tiled=True)

    def body(i, fetched):
        words, carry = fetched
        ahead = fetch((i + 1) * size, size)
        return ahead, visit(carry, i * size, words)

    words = fetch(0, size)
    if blocks > 1:
        words, carry = jax.lax.fori_loop(0, blocks - 1, body, (words, carry))
    carry = visit(carry, (blocks - 1) * size, words)
    if rest:
        carry = visit(carry, blocks * size, fetch(blocks * size, rest))
    return carry


def _forward_shard(hidden, table, target_ids, mask, temperature, *, chunk, gpu):
    hidden, targets, order, chunk, chunks = _scored_first(
        hidden, table, target_ids, mask, chunk, gpu
    )

    def visit(carry, start, words):
        def body(i, carry):
            def part(array):
                return jax.lax.dynamic_slice_in_dim(array, i * chunk, chunk)

            top, total, weighted, taken = map(part, carry)
            logits = _logits(part(hidden), words, temperature, gpu)
            word = part(targets) - start
            here = (word >= 0) & (word < len(words))
            word = jnp.where(here, word, 0)[:, None]
            own = jnp.take_along_axis(logits, word, axis=1)[:, 0]
            taken += jnp.where(here, own, 0)
            if gpu:
                found = merge((top, total, weighted), online_softmax_mean(logits))
            else:
                new_top = jnp.maximum(top, jnp.max(logits, axis=-1))
                weights = jnp.exp(logits - new_top[:, None])
                keep = jnp.exp(top - new_top)
                total = total * keep + jnp.sum(weights, axis=-1)
                weighted = weighted * keep + jnp.sum(weights * logits, axis=-1)
                found = new_top, total, weighted
            return tuple(
                _put(array, value, i * chunk, 0)
                for array, value in zip(carry, (*found, taken), strict=True)
            )

        return jax.lax.fori_loop(0, chunks, body, carry)

    zeros = jnp.zeros(order.size, jnp.promote_types(hidden.dtype, jnp.float32))
    # The first block replaces the total of 1. Where no block is computed, the total
    # stays 1, whose logarithm is finite.
    carry = zeros + _MASKED, zeros + 1, zeros, zeros
    carry = _over_vocabulary(visit, carry, table, hidden.dtype, gpu)
    local, total, weighted, taken = carry
    words = mesh_axes("vocab")
    top = jax.lax.pmax(local, words)
    keep = jnp.exp(local - top)
    total, weighted, taken = jax.lax.psum((total * keep, weighted * keep, taken), words)
    logsumexp = top + jnp.log(total)
    found = taken - logsumexp, logsumexp - weighted / total, logsumexp
    return tuple(_in_place(x, order, mask.size).reshape(mask.shape) for x in found)


def _backward_shard(inputs, of_logprobs, by_entropy, *, chunk, gpu):
    hidden, table, target_ids, mask, temperature, logsumexp = inputs
    shape = hidden.shape
    hidden, targets, order, chunk, chunks = _scored_first(
        hidden, table, target_ids, mask, chunk, gpu
    )
    # An infinite logsumexp makes probabilities and gradients of the padding 0.
    logsumexp = logsumexp.reshape(-1).at[order].get(mode="fill", fill_value=jnp.inf)

    def scored(array):
        return array.reshape(-1).at[order].get(mode="fill", fill_value=0)

    scale = scored(of_logprobs) / temperature
    if by_entropy:
        entropy, of_entropy = map(scored, by_entropy)
        entropy_scale = of_entropy / temperature
    accumulate = jnp.promote_types(hidden.dtype, jnp.float32)

    def dot(a, b, contract):
        return jax.lax.dot_general(
            a, b, ((contract, (0,)), ((), ())), preferred_element_type=accumulate
        )

    def visit(carry, start, words):
        d_hidden, d_table = carry

        def body(i, carry):
            def part(array):
                return jax.lax.dynamic_slice_in_dim(array, i * chunk, chunk)

            d_hidden, d_words = carry
            tokens = part(hidden)
            logits = _logits(tokens, words, temperature, gpu)
            log_p = logits - part(logsumexp)[:, None]
            probabilities = jnp.exp(log_p)
            hit = start + jnp.arange(len(words)) == part(targets)[:, None]
            d_logits = (hit - probabilities) * part(scale)[:, None]
            if by_entropy:
                # dH/dz = -p (log p + H), which is 0 where p is 0.
                log_p = jnp.where(probabilities > 0, log_p, 0)
                d_entropy = -probabilities * (log_p + part(entropy)[:, None])
                d_logits += d_entropy * part(entropy_scale)[:, None]
            d_logits = d_logits.astype(words.dtype)
            d_tokens = part(d_hidden) + dot(d_logits, words, (1,))
            d_hidden = _put(d_hidden, d_tokens, i * chunk, 0)
            return d_hidden, d_words + dot(d_logits, tokens, (0,))

        d_words = jnp.zeros(words.shape, accumulate)
        d_hidden, d_words = jax.lax.fori_loop(0, chunks, body, (d_hidden, d_words))
        return d_hidden, _put(d_table, _scattered(d_words), start, 0)

    carry = jnp.zeros(hidden.shape, accumulate), jnp.zeros(table.shape, accumulate)
    d_hidden, d_table = _over_vocabulary(visit, carry, table, hidden.dtype, gpu)
    words, columns = mesh_axes("vocab"), column_axes()
    d_hidden = jax.lax.psum(d_hidden.astype(hidden.dtype), words)
    d_hidden = _in_place(d_hidden, order, mask.size).reshape(shape)
    others = tuple(axis for axis in mesh_axes("batch") if axis not in columns)
    return d_hidden, jax.lax.psum(d_table, others).astype(table.dtype)
