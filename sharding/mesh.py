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
    """Returns the devices of all processes; raises ValueError if there are none."""
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
    """Builds a mesh over all devices, or over `devices`, with the axes AXES.

    One of the three sizes may be -1; it is computed from the number of devices.

    Args:
      data: the number of replicas of the parameters, each with its own batch rows.
      fsdp: the number of devices that shard parameters, optimizer state and batch rows.
      tensor: the number of devices that shard heads, MLP width and vocabulary.
      devices: None for the devices of all processes.

    Raises:
      ValueError: JAX finds no devices, a size is invalid, the sizes do not match the
        number of devices, or a tensor group would span several slices or nodes.
    """
    devices = all_devices() if devices is None else list(devices)
    shape = resolve_shape(len(devices), data=data, fsdp=fsdp, tensor=tensor)
    return _mesh(arranged(shape, devices))


def _mesh(devices: np.ndarray) -> Mesh:
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arranged(shape: tuple[int, int, int], devices: Sequence[jax.Device]) -> np.ndarray:
    """Returns the devices as an array of `shape`; later axes have faster connections.

    TPU slices and GPU nodes are distributed over the data axis first, then over fsdp.
    Raises ValueError if data x fsdp is not a multiple of the number of slices or nodes.
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
        raise ValueError(
            f"config.mesh data={data} fsdp={fsdp} tensor={tensor}: data x fsdp must be"
            f" a multiple of the {slices} slices or nodes"
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
    """Returns the sizes of a mesh, with -1 replaced by the size that uses all devices.

    Raises ValueError if a size is invalid, two sizes are -1, or the sizes do not match
    the number of devices.
    """
    sizes = data, fsdp, tensor
    given = f"config.mesh data={data} fsdp={fsdp} tensor={tensor}"
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise ValueError(f"{given}: each size must be at least 1; one may be -1")
    known = math.prod(size for size in sizes if size != -1)
    if -1 not in sizes and known != n_devices:
        raise ValueError(
            f"{given}: the product is {known}, but the number of devices is"
            f" {n_devices}; check that JAX finds the accelerators (on a CPU: check"
            " XLA_FLAGS), or set one size to -1"
        )
    if n_devices % known:
        raise ValueError(
            f"{given}: one size is -1, so the product of the other two, {known}, must"
            f" divide the number of devices, {n_devices}"
        )
    rest = n_devices // known
    data, fsdp, tensor = (rest if size == -1 else size for size in sizes)
    return data, fsdp, tensor


def served_mesh(mesh: Mesh, tensor: int) -> Mesh:
    """Returns the sampler's mesh: the same devices in order, in groups of `tensor`.

    Each group holds a full copy of the weights, split by heads, MLP width and
    vocabulary, and samples its own rows.

    Raises:
      ValueError: `tensor` is not a positive divisor of the number of devices.
    """
    shape = resolve_shape(mesh.size, data=-1, fsdp=1, tensor=tensor)
    return _mesh(mesh.devices.reshape(shape))


def between_mesh(trained: Mesh, served: Mesh) -> Mesh | None:
    """Returns the mesh of an intermediate sharding, to publish weights in two steps.

    The tensor size is that of `served`: n times that of `trained`. The fsdp size is
    that of `trained`, divided by n. Returns None if n is 1 or not an integer, if n does
    not divide the fsdp size, or if `served` is a single copy of the weights.
    """
    data, fsdp, tensor = (trained.shape[axis] for axis in AXES)
    wanted = served.shape[AXES[-1]]
    given, left = divmod(wanted, tensor)
    if left or given == 1 or fsdp % given or given == data * fsdp:
        return None
    return _mesh(trained.devices.reshape(data, fsdp // given, wanted))


def platform(mesh: Mesh | None) -> str:
    """Returns the platform of the mesh, "cpu", "gpu" or "tpu"; JAX's default for None.

    With ahead-of-time compilation, the mesh may be of another platform than this host.
    """
    name = mesh.devices.flat[0].platform if mesh else jax.default_backend()
    return "gpu" if name in ("cuda", "rocm") else name


def abstract_mesh(shape: tuple[int, int, int]) -> AbstractMesh:
    """Returns a mesh without devices, to compute shardings."""
    return AbstractMesh(shape, AXES)
