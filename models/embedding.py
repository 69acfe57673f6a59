"""Looking tokens up in a table that is split over the mesh.

Axes: N tokens, D model width, V vocabulary. Tokens are split as
rows are, the table by words and by columns, over the mesh's axes that
`sharding.rules` gives them.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Float, Int

from sharding.rules import mesh_axes, shards, spec


def table_axes() -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Mesh axes of words, of columns, and whether rows are split over the latter too.

    Raises:
      ValueError: rows are split over the words' axes, or over some of the columns'.
    """
    rows, words = set(mesh_axes("batch")), mesh_axes("vocab")
    columns = mesh_axes("embed")
    shared = rows & {*columns}
    if rows & {*words} or shared not in (set(), {*columns}):
        raise ValueError(
            f"RULES of sharding/rules.py: batch={tuple(sorted(rows))} must share no"
            f" mesh axis with vocab={words}, and all or none with embed={columns}"
        )
    return words, columns, bool(shared)


@jax.named_scope("embedding")
def look_up(
    table: Float[jax.Array, "V D"],
    token_ids: Int[jax.Array, " N"],
    mesh: Mesh | None,
    dtype: DTypeLike,
    ordered: bool = False,
) -> Float[jax.Array, "N D"]:
    """`table[token_ids]`, and no device ever holds more than its part.

    Tokens travel to the table: each device looks all tokens of its group up in its
    columns, and the columns are then exchanged for rows. The gradient takes the same
    way back and is summed in the table's own dtype. The other way round, which is the
    partitioner's, every micro-batch gathers the table and reduces a gradient as large.
    Where a group's devices have the same rows, they sum what each of them found.

    Args:
      table: split as above.
      token_ids: from 0 to V - 1.
      mesh: None, or one that leaves the table whole, looks up in place.
      dtype: of the result, and of what travels.
      ordered: whether the gradient is summed in a fixed order. A GPU otherwise adds
        the rows of a repeated token atomically, in whatever order.
    """
    rows_of = ordered_rows if ordered else _rows
    if mesh is None or shards("vocab", mesh) * shards("embed", mesh) == 1:
        return rows_of(table, token_ids).astype(dtype)
    return jax.shard_map(
        functools.partial(_look_up_shard, dtype=dtype, rows_of=rows_of),
        mesh=mesh,
        in_specs=(spec("vocab", "embed"), spec("batch")),
        out_specs=spec("batch"),
    )(table, token_ids)


def _rows(table, indices):
    return table[indices]


@jax.custom_vjp
def ordered_rows(
    table: Float[jax.Array, "V D"], indices: Int[jax.Array, " N"]
) -> Float[jax.Array, "N D"]:
    """`table[indices]` with a gradient whose sums have the same order in every run.

    The gradient's rows are sorted by index. A segmented scan then sums equal indices in
    log2(N) passes, and the last row of each index goes into the table.
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
    # The other rows get distinct indices past the end, and are dropped.
    place = jnp.where(last, indices, len(table) + jnp.arange(count))
    zeros = jnp.zeros(table.shape, table.dtype)
    return zeros.at[place].set(sums, mode="drop", unique_indices=True), None


ordered_rows.defvjp(_ordered_forward, _ordered_backward)


def _look_up_shard(table, token_ids, *, dtype, rows_of):
    words, columns, with_rows = table_axes()
    vocab, width = table.shape
    alone = jax.lax.axis_size(columns) == 1
    with_rows &= not alone
    if with_rows:
        token_ids = jax.lax.all_gather(token_ids, columns, tiled=True)
    own = token_ids - jax.lax.axis_index(words) * vocab
    here = (own >= 0) & (own < vocab)
    # The gradient is then summed over devices that have other rows and the same words.
    of_table = (*words, *columns)
    others = tuple(axis for axis in mesh_axes("batch") if axis not in of_table)
    table = jax.lax.pcast(table, others, to="varying")
    part = rows_of(table, jnp.where(here, own, 0)).astype(dtype)
    part = jnp.where(here[:, None], part, 0)
    if with_rows:
        rows = jax.lax.all_to_all(
            part, columns, split_axis=0, concat_axis=1, tiled=True
        )
        return jax.lax.psum(rows, words)
    if alone:
        return jax.lax.psum(part, (*words, *columns))
    whole = jnp.zeros((len(part), width * jax.lax.axis_size(columns)), dtype)
    start = jax.lax.axis_index(columns) * width
    rows = jax.lax.dynamic_update_slice_in_dim(whole, part, start, 1)
    return jax.lax.psum(rows, (*words, *columns))
