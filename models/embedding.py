"""Looking tokens up in a table that is split over the mesh.

Axes: N tokens, D model width, V vocabulary. Tokens are split over the mesh's data and
fsdp axes, the table over tensor (V) and fsdp (D).
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from sharding.rules import RULES

_ROWS, _VOCAB, _WIDTH = RULES["batch"], RULES["vocab"], RULES["embed"]


def look_up(
    table: jax.Array, token_ids: jax.Array, mesh: Mesh | None, dtype: jnp.dtype
) -> jax.Array:
    """`table[token_ids]`, `[N, D]`, and no device ever holds more than its part.

    Tokens travel to the table: each device looks all tokens of its fsdp group up in its
    columns, and the columns are then exchanged for rows. The gradient takes the same
    way back and is summed in the table's own dtype. The other way round, which is the
    partitioner's, every micro-batch gathers the table and reduces a gradient as large.

    Args:
      table: `[V, D]`.
      token_ids: int32 `[N]`, from 0 to V - 1.
      mesh: None, or one that leaves the table whole, looks up in place.
      dtype: of the result, and of what travels.
    """
    if mesh is None or mesh.shape[_VOCAB] * mesh.shape[_WIDTH] == 1:
        return table[token_ids].astype(dtype)
    return jax.shard_map(
        functools.partial(_look_up_shard, dtype=dtype),
        mesh=mesh,
        in_specs=(P(_VOCAB, _WIDTH), P(_ROWS)),
        out_specs=P(_ROWS),
    )(table, token_ids)


def _look_up_shard(table, token_ids, *, dtype):
    vocab = table.shape[0]
    group = jax.lax.all_gather(token_ids, _WIDTH, tiled=True)
    own = group - jax.lax.axis_index(_VOCAB) * vocab
    here = (own >= 0) & (own < vocab)
    columns = table[jnp.where(here, own, 0)].astype(dtype)
    columns = jnp.where(here[:, None], columns, 0)
    rows = jax.lax.all_to_all(columns, _WIDTH, split_axis=0, concat_axis=1, tiled=True)
    return jax.lax.psum(rows, _VOCAB)
