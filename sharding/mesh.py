"""The device mesh: sizes of its axes data, fsdp and tensor."""

import math
import os
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh

from sharding.rules import AXES

# What the sizes are called, whatever the axes are.
SIZES = ("data", "fsdp", "tensor")


def all_devices() -> list[jax.Device]:
    """Returns every device of every process.

    Raises:
      ValueError: JAX cannot start its platform; one line.
    """
    try:
        return jax.devices()
    # JAX asserts that there is a platform, for cuda without its plugin.
    except (RuntimeError, AssertionError) as error:
        named = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split()) or "no such platform is installed"
        raise ValueError(
            f"JAX_PLATFORMS={named!r}: JAX finds no devices ({reason[:300]});"
            " JAX_PLATFORMS=cpu runs on the CPU"
        ) from None


def make_mesh(
    *,
    data: int = 1,
    fsdp: int = -1,
    tensor: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Builds a mesh over all devices, or over `devices`.

    Args:
      data: replicas of the parameters, each with its own rows of a batch.
      fsdp: devices over which parameters, optimizer state and rows are split.
      tensor: devices over which heads, MLP width and vocabulary are split.
      devices: defaults to every device of every process.

    One of the three sizes may be -1: whatever the others leave.

    Returns:
      A mesh whose axes are `sharding.rules.AXES`.

    Raises:
      ValueError: the sizes do not fit the devices, or a tensor group would cross from
        one slice or node to another; the message has both.
    """
    devices = all_devices() if devices is None else list(devices)
    shape = resolve_shape(len(devices), data=data, fsdp=fsdp, tensor=tensor)
    types = (AxisType.Auto,) * len(AXES)
    return Mesh(arranged(shape, devices), AXES, axis_types=types)


def arranged(shape: tuple[int, int, int], devices: Sequence[jax.Device]) -> np.ndarray:
    """The devices in that shape: the faster a network, the further in the axis on it.

    Slices of TPUs and nodes of GPUs come along data, then fsdp: the devices of one
    tensor group are always on one. Within a slice neighbours on the interconnect are
    neighbours along the innermost axis.
    """
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        return mesh_utils.create_device_mesh(
            shape, devices, allow_split_physical_axes=True
        )
    data, fsdp, tensor = shape
    over_data = math.gcd(data, slices)
    over_fsdp = slices // over_data
    if fsdp % over_fsdp:
        sizes = " ".join(f"{k}={v}" for k, v in zip(SIZES, shape, strict=True))
        raise ValueError(
            f"mesh {sizes}: data x fsdp does not divide over {slices} slices or nodes"
        )
    return mesh_utils.create_hybrid_device_mesh(
        (data // over_data, fsdp // over_fsdp, tensor),
        (over_data, over_fsdp, 1),
        devices,
        allow_split_physical_axes=True,
    )


def resolve_shape(
    n_devices: int, *, data: int, fsdp: int, tensor: int
) -> tuple[int, int, int]:
    """The three sizes with -1 filled in; see `make_mesh`."""
    sizes = dict(zip(SIZES, (data, fsdp, tensor), strict=True))
    asked = f"mesh data={data} fsdp={fsdp} tensor={tensor}"
    free = [axis for axis, size in sizes.items() if size == -1]
    if len(free) > 1:
        raise ValueError(f"{asked}: only one axis may be -1")
    for axis, size in sizes.items():
        if size != -1 and size < 1:
            raise ValueError(f"{asked}: {axis} must be at least 1, or -1")
    known = int(np.prod([size for size in sizes.values() if size != -1]))
    if free:
        if n_devices % known:
            raise ValueError(f"{asked} does not divide {n_devices} devices")
        sizes[free[0]] = n_devices // known
    elif known != n_devices:
        raise ValueError(f"{asked} needs {known} devices, there are {n_devices}")
    return sizes["data"], sizes["fsdp"], sizes["tensor"]


def served_mesh(mesh: Mesh, tensor: int) -> Mesh:
    """Return the same devices, in the same order, as copies of `tensor` devices each.

    Weights on it are split by heads, MLP width and vocabulary only, and every copy has
    its own rows.

    Raises:
      ValueError: `tensor` does not divide the devices.
    """
    shape = resolve_shape(mesh.size, data=-1, fsdp=1, tensor=tensor)
    return Mesh(
        mesh.devices.reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES)
    )


def between_mesh(trained: Mesh, served: Mesh) -> Mesh | None:
    """The trained mesh with as much of fsdp given to tensor as a served copy has.

    Args:
      trained: in training.
      served: as of `served_mesh`.

    Returns:
      The same devices in the same order; None where the sizes do not divide, or where
      it would be one of the two.
    """
    data, fsdp, tensor = (trained.shape[axis] for axis in AXES)
    wanted = served.shape[AXES[-1]]
    given, left = divmod(wanted, tensor)
    if left or given == 1 or fsdp % given or given == data * fsdp:
        return None
    shape = data, fsdp // given, wanted
    return Mesh(
        trained.devices.reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES)
    )


def platform(mesh: Mesh | None) -> str:
    """`cpu`, `gpu` or `tpu`: of the mesh's own devices, wherever one compiles for it.

    Without a mesh that of JAX's default devices.
    """
    name = mesh.devices.flat[0].platform if mesh else jax.default_backend()
    return "gpu" if name in ("cuda", "rocm") else name


def abstract_mesh(shape: tuple[int, int, int]) -> AbstractMesh:
    """A mesh of that shape without devices, to ask the table about."""
    return AbstractMesh(shape, AXES)
