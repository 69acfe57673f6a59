"""Looks up token embeddings in a table that is sharded over the mesh.

Axes: N tokens, D model width, V vocabulary. Tokens are sharded as "batch", the table as
"vocab" and "embed" in `sharding.rules`.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Float, Int

from sharding.rules import mesh_axes, shards, spec


def column_axes() -> tuple[str, ...]:
    """Returns the mesh axes of the table's columns, which also shard "batch".

    Raises ValueError if they do not, or if a mesh axis of the table's rows does.
    """
    batch, words, columns = map(mesh_axes, ("batch", "vocab", "embed"))
    if {*words} & {*batch} or not {*columns} <= {*batch}:
        raise ValueError(
            f"RULES of sharding/rules.py: batch={batch} must have all mesh axes of"
            f" embed={columns}, and no mesh axis of vocab={words}"
        )
    return columns


@jax.named_scope("embedding")
def look_up(
    table: Float[jax.Array, "V D"],
    token_ids: Int[jax.Array, " N"],
    mesh: Mesh | None,
    dtype: DTypeLike,
    ordered: bool = False,
) -> Float[jax.Array, "N D"]:
    """Returns `table[token_ids]` without gathering the table on any device.

    Devices along the mesh axes of the table's columns gather each other's token ids.
    Each looks them up in its own part of the table. An all-to-all then gives a device
    complete rows for its own tokens. Devices that split the vocabulary sum the results.

    The gradient takes the reverse path, and is summed in the table's dtype. XLA's
    partitioner would gather the table and reduce its whole gradient in every
    micro-batch.

    Args:
      dtype: the dtype of the result and of the exchanged rows.
      ordered: whether the gradient is summed in a fixed order. Otherwise a GPU sums the
        gradients of a repeated token in an arbitrary order.
    """
    rows_of = _ordered_rows if ordered else operator.getitem
    if mesh is None or shards("vocab", mesh) * shards("embed", mesh) == 1:
        return rows_of(table, token_ids).astype(dtype)
    return jax.shard_map(
        functools.partial(_look_up_shard, dtype=dtype, rows_of=rows_of),
        mesh=mesh,
        in_specs=(spec("vocab", "embed"), spec("batch")),
        out_specs=spec("batch"),
    )(table, token_ids)


@jax.custom_vjp
def _ordered_rows(table: jax.Array, indices: jax.Array) -> jax.Array:
    """Returns `table[indices]`, with a gradient that is summed in a fixed order.

    The gradient's rows are sorted by index. A scan of log2(N) passes then adds up the
    rows with equal indices: the last row of each index becomes their sum.
    """
    return table[indices]


def _ordered_forward(table, indices):
    return table[indices], (table, indices)


def _ordered_backward(saved, d_rows):
    table, indices = saved
    order = jnp.argsort(indices, stable=True)
    indices, sums = indices[order], d_rows[order].astype(table.dtype)
    count = indices.size
    step = 1
    while step < count:
        same = (indices[step:] == indices[:-step])[:, None]
        added = jnp.where(same, sums[:-step], 0)
        sums = jnp.concatenate([sums[:step], sums[step:] + added])
        step *= 2
    last = jnp.append(indices[1:] != indices[:-1], True)
    # All other rows get distinct indices past the end and are dropped.
    place = jnp.where(last, indices, len(table) + jnp.arange(count))
    zeros = jnp.zeros(table.shape, table.dtype)
    return zeros.at[place].set(sums, mode="drop", unique_indices=True), None


_ordered_rows.defvjp(_ordered_forward, _ordered_backward)


def _look_up_shard(table, token_ids, *, dtype, rows_of):
    words, columns, vocab = mesh_axes("vocab"), column_axes(), len(table)
    split = jax.lax.axis_size(columns) > 1
    if split:
        token_ids = jax.lax.all_gather(token_ids, columns, tiled=True)
    own = token_ids - jax.lax.axis_index(words) * vocab
    here = (own >= 0) & (own < vocab)
    # The gradient is summed over devices with other tokens and the same part of the
    # table.
    others = tuple(axis for axis in mesh_axes("batch") if axis not in columns)
    table = jax.lax.pcast(table, others, to="varying")
    part = rows_of(table, jnp.where(here, own, 0)).astype(dtype)
    part = jnp.where(here[:, None], part, 0)
    if split:
        part = jax.lax.all_to_all(
            part, columns, split_axis=0, concat_axis=1, tiled=True
        )
    return jax.lax.psum(part, words)
