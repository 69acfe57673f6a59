"""The head: log-probability and entropy of tokens from hidden states.

Neither direction ever holds a `[tokens, vocabulary]` array, nor any device the whole of
a table that the mesh splits. Scored positions are brought together first, so that
prompts and padding never meet the vocabulary. The vocabulary is then taken a block at a
time, gathered over fsdp while the block before it is at work, and against each block
the scored tokens `chunk` at a time, in a loop whose length is data: its cost follows
the number of scored tokens while its shapes do not.

Axes: R rows, T positions, D model width, V vocabulary, C tokens of a chunk, W words of
a block, N scored tokens, padded to whole chunks. Rows are split over the mesh's data
and fsdp axes, the table over tensor (V) and fsdp (D).
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from sharding.rules import RULES

_ROWS, _VOCAB, _WIDTH = RULES["batch"], RULES["vocab"], RULES["embed"]
_TABLE = P(_VOCAB, _WIDTH)
_BLOCK = 4096  # W; with chunks of 1,024 tokens a block of logits takes 16 MiB
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
      table: `[V, D]`, cast to the compute dtype block by block.
      target_ids: int32 `[R, T]`, the token that each hidden state produces.
      mask: bool `[R, T]`; elsewhere both results are 0.
      temperature: scalar by which logits are divided.
      mesh: on which rows and the table are split.
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
        in_specs=(P(_ROWS), _TABLE, P(_ROWS), P(_ROWS), P()),
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
        in_specs=(P(_ROWS), _TABLE, P(_ROWS), P(_ROWS), P(), P(_ROWS), P(_ROWS)),
        out_specs=(P(_ROWS), _TABLE),
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


def _own_words(target_ids: jax.Array, vocab: int) -> jax.Array:
    """Flat target ids, counted from the first of this device's `vocab` words."""
    return target_ids.reshape(-1) - jax.lax.axis_index(_VOCAB) * vocab


def _logits(hidden, words, temperature):
    accumulate = jnp.promote_types(hidden.dtype, jnp.float32)
    product = jax.lax.dot_general(
        hidden, words, (((1,), (1,)), ((), ())), preferred_element_type=accumulate
    )
    return product / temperature.astype(accumulate)


def _gathered(part: jax.Array) -> jax.Array:
    """This device's columns to all columns."""
    if jax.lax.axis_size(_WIDTH) == 1:
        # XLA on a CPU would still transpose the table for it, and transpose it back.
        return part
    return jax.lax.all_gather(part, _WIDTH, axis=1, tiled=True)


def _scattered(whole: jax.Array) -> jax.Array:
    """All columns to this device's, summed over devices; as `_gathered`, backwards."""
    if jax.lax.axis_size(_WIDTH) == 1:
        return whole
    return jax.lax.psum_scatter(whole, _WIDTH, scatter_dimension=1, tiled=True)


def _over_vocabulary(visit, carry, table, dtype):
    """`visit(carry, start, words)` for each block of this device's vocabulary.

    The block begins at word `start`; `words [W, D]` are whole along D and in `dtype`.
    """
    vocab = table.shape[0]
    size = min(_BLOCK, vocab)
    blocks, rest = divmod(vocab, size)

    def fetch(start, size):
        words = jax.lax.dynamic_slice_in_dim(table, start, size).astype(dtype)
        return _gathered(words)

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


def _forward_shard(hidden, table, target_ids, mask, temperature, *, chunk):
    targets = _own_words(target_ids, table.shape[0])
    chunk = min(chunk, targets.size)
    order, chunks = _scored_first(mask, chunk)
    hidden = hidden.reshape(-1, hidden.shape[-1]).at[order].get(mode="clip")
    targets = targets.at[order].get(mode="clip")

    def visit(carry, start, words):
        def body(i, carry):
            def part(array):
                return jax.lax.dynamic_slice_in_dim(array, i * chunk, chunk)

            top, total, weighted, taken = map(part, carry)
            logits = _logits(part(hidden), words, temperature)
            word = part(targets) - start
            here = (word >= 0) & (word < len(words))
            word = jnp.where(here, word, 0)[:, None]
            found = jnp.take_along_axis(logits, word, axis=1)[:, 0]
            taken += jnp.where(here, found, 0)
            new_top = jnp.maximum(top, jnp.max(logits, axis=-1))
            weights = jnp.exp(logits - new_top[:, None])
            keep = jnp.exp(top - new_top)
            total = total * keep + jnp.sum(weights, axis=-1)
            weighted = weighted * keep + jnp.sum(weights * logits, axis=-1)
            return tuple(
                jax.lax.dynamic_update_slice_in_dim(array, value, i * chunk, 0)
                for array, value in zip(
                    carry, (new_top, total, weighted, taken), strict=True
                )
            )

        return jax.lax.fori_loop(0, chunks, body, carry)

    zeros = jnp.zeros(order.size, jnp.promote_types(hidden.dtype, jnp.float32))
    # A total of 1 is forgotten with the first block, and has a logarithm elsewhere.
    carry = zeros + _MASKED, zeros + 1, zeros, zeros
    local, total, weighted, taken = _over_vocabulary(visit, carry, table, hidden.dtype)
    top = jax.lax.pmax(local, _VOCAB)
    keep = jnp.exp(local - top)
    total, weighted, taken = jax.lax.psum(
        (total * keep, weighted * keep, taken), _VOCAB
    )
    logsumexp = top + jnp.log(total)
    return tuple(
        jnp.zeros(mask.size, zeros.dtype)
        .at[order]
        .set(found, mode="drop")
        .reshape(mask.shape)
        for found in (taken - logsumexp, logsumexp - weighted / total, logsumexp)
    )


def _backward_shard(
    hidden, table, target_ids, mask, temperature, logsumexp, gradient, *, chunk
):
    shape, width = hidden.shape, hidden.shape[-1]
    targets = _own_words(target_ids, table.shape[0])
    chunk = min(chunk, targets.size)
    order, chunks = _scored_first(mask, chunk)
    hidden = hidden.reshape(-1, width).at[order].get(mode="clip")
    targets = targets.at[order].get(mode="clip")
    # Past the end of the scored tokens every probability is 0, and its gradient too.
    logsumexp = logsumexp.reshape(-1).at[order].get(mode="fill", fill_value=jnp.inf)
    scale = gradient.reshape(-1).at[order].get(mode="fill", fill_value=0) / temperature
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
            logits = _logits(tokens, words, temperature)
            probabilities = jnp.exp(logits - part(logsumexp)[:, None])
            hit = start + jnp.arange(len(words)) == part(targets)[:, None]
            d_logits = (hit - probabilities) * part(scale)[:, None]
            d_logits = d_logits.astype(words.dtype)
            d_tokens = part(d_hidden) + dot(d_logits, words, (1,))
            d_hidden = jax.lax.dynamic_update_slice_in_dim(
                d_hidden, d_tokens, i * chunk, 0
            )
            return d_hidden, d_words + dot(d_logits, tokens, (0,))

        d_words = jnp.zeros(words.shape, accumulate)
        d_hidden, d_words = jax.lax.fori_loop(0, chunks, body, (d_hidden, d_words))
        return d_hidden, jax.lax.dynamic_update_slice_in_dim(
            d_table, _scattered(d_words), start, 0
        )

    carry = jnp.zeros(hidden.shape, accumulate), jnp.zeros(table.shape, accumulate)
    d_hidden, d_table = _over_vocabulary(visit, carry, table, hidden.dtype)
    d_hidden = jax.lax.psum(d_hidden.astype(hidden.dtype), _VOCAB)
    d_hidden = (
        jnp.zeros((mask.size, width), hidden.dtype).at[order].set(d_hidden, mode="drop")
    )
    d_table = jax.lax.psum(d_table, "data").astype(table.dtype)
    return d_hidden.reshape(shape), d_table
