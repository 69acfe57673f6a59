"""Logical axes of arrays, resolved strictly to axes of the mesh.

No other file names an axis of the mesh: code that lays out an array, splits a loop's
work or counts shards names a logical axis.

Flax's own resolution lets a misspelt name mean "unsharded" and drops a mesh axis that
is used twice; here both are errors.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Shaped

_Tree = TypeVar("_Tree")
# Of the mesh, major to minor; sizes are given in this order.
AXES = DATA, FSDP, TENSOR = ("data", "fsdp", "tensor")

RULES: Mapping[str, str | tuple[str, ...] | None] = {
    # activations
    "batch": (DATA, FSDP),
    "length": None,
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
    """The mesh axes over which a logical axis is split; None is split over none.

    Raises:
      ValueError: the table has no such name.
    """
    if name is None:
        return ()
    if name not in RULES:
        raise ValueError(f"unknown logical axis {name!r}; known: {sorted(RULES)}")
    target = RULES[name]
    return (target,) if isinstance(target, str) else tuple(target or ())


def shards(name: str, mesh: Mesh | AbstractMesh) -> int:
    """Into how many parts a mesh splits a logical axis."""
    return math.prod(mesh.shape[axis] for axis in mesh_axes(name))


def spec(*axes: str | None) -> PartitionSpec:
    """A logical name for each leading dimension, of whatever size and on any mesh."""
    return PartitionSpec(*(mesh_axes(axis) or None for axis in axes))


def laid_out(mesh: Mesh | AbstractMesh, *axes: str | None) -> NamedSharding:
    """`spec` on a mesh; without names every device holds the whole array."""
    return NamedSharding(mesh, spec(*axes))


def place(arrays: _Tree, sharding: NamedSharding) -> _Tree:
    """Puts a tree of host arrays on the devices, each process its own part."""
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
    """Resolves one logical axis name per dimension; None leaves it whole.

    Args:
      axes: a logical name, or None, for each dimension.
      mesh: the mesh whose axes the rules name.
      shape: the array's shape.
      name: what to call the array in an error.

    Raises:
      ValueError: an unknown name, a mesh axis used by two dimensions, a dimension
        that its mesh axes do not divide, or a rank that does not fit.
    """
    if len(axes) != len(shape):
        raise ValueError(
            f"{name}: {len(axes)} logical axes {tuple(axes)} for shape {tuple(shape)}"
        )
    used: dict[str, str] = {}
    resolved = []
    for axis, dim in zip(axes, shape, strict=True):
        try:
            targets = mesh_axes(axis)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        size = 1
        for mesh_axis in targets:
            if mesh_axis not in mesh.shape:
                raise ValueError(
                    f"{name}: {axis!r} maps to {mesh_axis!r}, no axis of the mesh"
                    f" {tuple(mesh.shape)}"
                )
            if mesh_axis in used:
                raise ValueError(
                    f"{name}: mesh axis {mesh_axis!r} used by both"
                    f" {used[mesh_axis]!r} and {axis!r}"
                )
            used[mesh_axis] = str(axis)
            size *= mesh.shape[mesh_axis]
        if dim % size:
            raise ValueError(
                f"{name}: dimension {axis!r} of size {dim} does not divide over"
                f" {size} devices of mesh axis {'x'.join(targets)}"
            )
        resolved.append(targets or None)
    return PartitionSpec(*resolved)


def named_sharding(
    axes: Sequence[str | None],
    mesh: Mesh | AbstractMesh,
    *,
    shape: Sequence[int],
    name: str = "array",
) -> NamedSharding:
    """`partition_spec` on its mesh."""
    return NamedSharding(mesh, partition_spec(axes, mesh, shape=shape, name=name))


def constrain(
    x: Shaped[jax.Array, "*dims"],
    axes: Sequence[str | None],
    mesh: Mesh | AbstractMesh | None,
) -> Shaped[jax.Array, "*dims"]:
    """Pins the layout of an activation; without a mesh there is nothing to pin."""
    if mesh is None:
        return x
    return jax.lax.with_sharding_constraint(
        x, named_sharding(axes, mesh, shape=x.shape, name="activation")
    )
