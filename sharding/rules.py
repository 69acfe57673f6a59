"""Logical axes of arrays, resolved strictly to axes of the mesh.

Flax's own resolution lets a misspelt name mean "unsharded" and drops a mesh axis that
is used twice; here both are errors.
"""

from collections.abc import Mapping, Sequence

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Rules = Mapping[str, str | tuple[str, ...] | None]

RULES: Rules = {
    # activations
    "batch": ("data", "fsdp"),
    "length": None,
    # parameters
    "layers": None,
    "embed": "fsdp",
    "norm": None,
    "heads": "tensor",
    "kv_heads": "tensor",
    "head_dim": None,
    "mlp": "tensor",
    "vocab": "tensor",
}


def partition_spec(
    axes: Sequence[str | None],
    mesh: Mesh,
    *,
    shape: Sequence[int],
    name: str = "array",
    rules: Rules = RULES,
) -> PartitionSpec:
    """Resolves one logical axis name per dimension; None leaves it whole.

    Args:
      axes: a logical name, or None, for each dimension.
      mesh: the mesh whose axes the rules name.
      shape: the array's shape.
      name: what to call the array in an error.
      rules: logical name to mesh axis, to several, or to None.

    Raises:
      ValueError: an unknown name, a mesh axis used by two dimensions, a dimension
        that its mesh axes do not divide, or a rank that does not fit.
    """
    if len(axes) != len(shape):
        raise ValueError(
            f"{name}: {len(axes)} logical axes {tuple(axes)} for shape {tuple(shape)}"
        )
    used: dict[str, str] = {}
    spec = []
    for axis, dim in zip(axes, shape, strict=True):
        if axis is None:
            spec.append(None)
            continue
        if axis not in rules:
            raise ValueError(
                f"{name}: unknown logical axis {axis!r}; known: {sorted(rules)}"
            )
        target = rules[axis]
        mesh_axes = (target,) if isinstance(target, str) else tuple(target or ())
        size = 1
        for mesh_axis in mesh_axes:
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
            used[mesh_axis] = axis
            size *= mesh.shape[mesh_axis]
        if dim % size:
            raise ValueError(
                f"{name}: dimension {axis!r} of size {dim} does not divide over"
                f" {size} devices of mesh axis {'x'.join(mesh_axes)}"
            )
        spec.append(target if mesh_axes else None)
    return PartitionSpec(*spec)


def named_sharding(
    axes: Sequence[str | None],
    mesh: Mesh,
    *,
    shape: Sequence[int],
    name: str = "array",
    rules: Rules = RULES,
) -> NamedSharding:
    """`partition_spec` on its mesh."""
    return NamedSharding(
        mesh, partition_spec(axes, mesh, shape=shape, name=name, rules=rules)
    )


def constrain(x: jax.Array, axes: Sequence[str | None], mesh: Mesh | None) -> jax.Array:
    """Pins the layout of an activation; without a mesh there is nothing to pin."""
    if mesh is None:
        return x
    return jax.lax.with_sharding_constraint(
        x, named_sharding(axes, mesh, shape=x.shape, name="activation")
    )


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole array."""
    return NamedSharding(mesh, PartitionSpec())
