"""Builds the device mesh with its axes data, fsdp and tensor."""

import math
import os
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh

from sharding.rules import AXES

# Config keys of the mesh sizes, for messages. The axes in AXES could have other names.
SIZES = ("data", "fsdp", "tensor")


def all_devices() -> list[jax.Device]:
    """Returns the devices of all processes.

    Raises:
      ValueError: JAX cannot initialize its platform.
    """
    try:
        return jax.devices()
    # JAX raises AssertionError for cuda without its plugin.
    except (RuntimeError, AssertionError) as error:
        named = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(error).split()) or "no such platform is installed"
        raise ValueError(
            f"JAX_PLATFORMS={named!r}: JAX finds no devices ({reason[:300]});"
            " set JAX_PLATFORMS=cpu to run on the CPU"
        ) from None


def make_mesh(
    *,
    data: int = 1,
    fsdp: int = -1,
    tensor: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Builds a mesh over all devices, or over `devices`.

    One of the three sizes may be -1; it is computed from the number of devices.

    Args:
      data: the number of replicas of the parameters, each with its own batch rows.
      fsdp: the number of devices that shard parameters, optimizer state and batch rows.
      tensor: the number of devices that shard heads, MLP width and vocabulary.
      devices: the devices of the mesh; None for the devices of all processes.

    Returns:
      A mesh whose axes are `sharding.rules.AXES`.

    Raises:
      ValueError: JAX finds no devices, a size is invalid, the sizes do not match the
        number of devices, or a tensor group would span several slices or nodes.
    """
    devices = all_devices() if devices is None else list(devices)
    shape = resolve_shape(len(devices), data=data, fsdp=fsdp, tensor=tensor)
    types = (AxisType.Auto,) * len(AXES)
    return Mesh(arranged(shape, devices), AXES, axis_types=types)


def arranged(shape: tuple[int, int, int], devices: Sequence[jax.Device]) -> np.ndarray:
    """Arranges the devices in `shape`, with inner axes on the faster network.

    TPU slices and GPU nodes are distributed over the data axis first, then over fsdp.
    Within a TPU slice, devices that are close on the interconnect are adjacent on the
    innermost axis.

    Raises:
      ValueError: a tensor group would span several slices or nodes.
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
            f"config.mesh {sizes}: data x fsdp must be a multiple of the {slices}"
            " slices or nodes"
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
    """Computes the mesh sizes, with -1 replaced by the size that uses all devices.

    Args:
      n_devices: the number of devices.
      data, fsdp, tensor: the sizes, as in `make_mesh`.

    Returns:
      The sizes of data, fsdp and tensor.

    Raises:
      ValueError: a size is invalid, two sizes are -1, or the sizes do not match the
        number of devices.
    """
    sizes = dict(zip(SIZES, (data, fsdp, tensor), strict=True))
    given = f"config.mesh data={data} fsdp={fsdp} tensor={tensor}"
    free = [axis for axis, size in sizes.items() if size == -1]
    if len(free) > 1:
        raise ValueError(f"{given}: only one axis may be -1")
    for axis, size in sizes.items():
        if size != -1 and size < 1:
            raise ValueError(f"{given}: {axis} must be at least 1, or -1")
    known = int(np.prod([size for size in sizes.values() if size != -1]))
    if free:
        if n_devices % known:
            raise ValueError(
                f"{given}: the product of the other two sizes, {known}, must divide the"
                f" {n_devices} devices"
            )
        sizes[free[0]] = n_devices // known
    elif known != n_devices:
        raise ValueError(
            f"{given}: needs {known} devices, but there are {n_devices}; set one size"
            " to -1"
        )
    return sizes["data"], sizes["fsdp"], sizes["tensor"]


def served_mesh(mesh: Mesh, tensor: int) -> Mesh:
    """Returns the sampler's mesh: the same devices, in groups of `tensor` devices.

    Each group holds a full copy of the weights, split by heads, MLP width and
    vocabulary, and samples its own rows. The order of the devices does not change.

    Raises:
      ValueError: the number of devices is not a multiple of `tensor`.
    """
    shape = resolve_shape(mesh.size, data=-1, fsdp=1, tensor=tensor)
    return Mesh(
        mesh.devices.reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES)
    )


def between_mesh(trained: Mesh, served: Mesh) -> Mesh | None:
    """Returns the mesh of an intermediate sharding, to publish weights in two steps.

    The mesh has the tensor size of `served`. Its fsdp size is that of `trained`,
    divided by the factor by which the tensor size grows.

    Args:
      trained: the mesh of the trainer.
      served: the mesh of the sampler, from `served_mesh`.

    Returns:
      A mesh of the same devices in the same order. None if the sizes are not divisible,
      if both meshes have the same tensor size, or if `served` is a single copy.
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
    """Returns the platform of a mesh's devices: "cpu", "gpu" or "tpu".

    With ahead-of-time compilation it can differ from the platform of this machine. If
    `mesh` is None, returns JAX's default platform.
    """
    name = mesh.devices.flat[0].platform if mesh else jax.default_backend()
    return "gpu" if name in ("cuda", "rocm") else name


def abstract_mesh(shape: tuple[int, int, int]) -> AbstractMesh:
    """Returns a mesh of `shape` without devices, to compute shardings."""
    return AbstractMesh(shape, AXES)
