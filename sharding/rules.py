"""Maps logical axes of arrays to mesh axes. Model code names only logical axes.

Flax's own rules treat a misspelled name as unsharded and ignore the second use of a
mesh axis. Here `partition_spec` rejects both.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Shaped

_Tree = TypeVar("_Tree")
# Mesh axes, major to minor. Mesh shapes use this order.
AXES = DATA, FSDP, TENSOR = ("data", "fsdp", "tensor")

RULES: Mapping[str, str | tuple[str, ...] | None] = {
    # activations
    "batch": (DATA, FSDP),
    # parameters
    "layers": None,
    "embed": FSDP,
    "norm": None,
    "heads": TENSOR,
    "kv_heads": TENSOR,
    "head_dim": None,
    "mlp": TENSOR,
    "vocab": TENSOR,
}


def mesh_axes(name: str | None) -> tuple[str, ...]:
    """Returns the mesh axes of a logical axis; raises ValueError if it is unknown."""
    if name is None:
        return ()
    if name not in RULES:
        raise ValueError(f"unknown logical axis {name!r}; known: {sorted(RULES)}")
    target = RULES[name]
    return (target,) if isinstance(target, str) else tuple(target or ())


def shards(name: str, mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of shards of a logical axis on a mesh."""
    return math.prod(mesh.shape[axis] for axis in mesh_axes(name))


def spec(*axes: str | None) -> PartitionSpec:
    """Returns the partition spec of logical axes; checks the names, but no shape."""
    return PartitionSpec(*(mesh_axes(axis) or None for axis in axes))


def named_sharding(mesh: Mesh | AbstractMesh, *axes: str | None) -> NamedSharding:
    """Returns the sharding `spec(*axes)` on a mesh; replicated if there are no axes."""
    return NamedSharding(mesh, spec(*axes))


def put_sharded(arrays: _Tree, sharding: NamedSharding) -> _Tree:
    """Copies a tree of host arrays to the devices, with the same sharding for each.

    Each process copies only the shards of its own devices.
    """
    return jax.tree.map(
        lambda x: jax.make_array_from_callback(
            x.shape, sharding, lambda index: x[index]
        ),
        arrays,
    )


def partition_spec(
    axes: Sequence[str | None],
    mesh: Mesh | AbstractMesh,
    *,
    shape: Sequence[int],
    name: str = "array",
) -> PartitionSpec:
    """Returns the partition spec of an array, after checking it against the shape.

    Args:
      axes: a logical axis name for each dimension; None for an unsharded dimension.
      name: the array's name in error messages.

    Raises:
      ValueError: a name is unknown, two dimensions use the same mesh axis, a dimension
        is not divisible by its shard count, or `axes` has another length than `shape`.
    """
    if len(axes) != len(shape):
        raise ValueError(
            f"{name}: has {len(axes)} logical axes {tuple(axes)}, but shape"
            f" {tuple(shape)}"
        )
    used: dict[str, str] = {}
    for axis, dim in zip(axes, shape, strict=True):
        for mesh_axis in mesh_axes(axis):
            if mesh_axis in used:
                raise ValueError(
                    f"{name}: mesh axis {mesh_axis!r} is used by both"
                    f" {used[mesh_axis]!r} and {axis!r}"
                )
            used[mesh_axis] = str(axis)
        if axis is not None and dim % (size := shards(axis, mesh)):
            raise ValueError(
                f"{name}: dimension {axis!r} of size {dim} must be a multiple of"
                f" {size}, the size of {' x '.join(mesh_axes(axis))}; change"
                " config.mesh or the number of devices"
            )
    return spec(*axes)


def checked_sharding(
    axes: Sequence[str | None],
    mesh: Mesh | AbstractMesh,
    *,
    shape: Sequence[int],
    name: str = "array",
) -> NamedSharding:
    """Returns the sharding of an array on `mesh`, checked as in `partition_spec`."""
    return NamedSharding(mesh, partition_spec(axes, mesh, shape=shape, name=name))


def constrain(
    x: Shaped[jax.Array, "*dims"],
    axes: Sequence[str | None],
    mesh: Mesh | AbstractMesh | None,
) -> Shaped[jax.Array, "*dims"]:
    """Constrains the sharding of an activation; returns `x` if `mesh` is None."""
    if mesh is None:
        return x
    return jax.lax.with_sharding_constraint(
        x, checked_sharding(axes, mesh, shape=x.shape, name="activation")
    )
