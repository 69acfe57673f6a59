"""Configures JAX: GPU memory, determinism, virtual CPU devices, compilation cache."""

import errno
import itertools
import os
import pathlib
import re
import tempfile
import warnings
from typing import Any

import jax
import numpy as np
from jax._src.distributed import global_state  # its barrier has no public name
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from configs.base import RunConfig
from rollout.cores import usable_cores

_JOIN_SECONDS = 600
_DEVICE_COUNT = "xla_force_host_platform_device_count"
GPU_SHARE = 0.92
"""Share of a GPU's memory that a run may allocate; JAX's default is 0.75."""


def is_out_of_memory(error: BaseException) -> bool:
    of_jax = isinstance(error, jax.errors.JaxRuntimeError)
    return of_jax and "RESOURCE_EXHAUSTED" in str(error)


def take_gpu_memory() -> None:
    """Lets JAX allocate the share `GPU_SHARE` of the memory of each GPU.

    XLA_PYTHON_CLIENT_MEM_FRACTION sets another share; raises ValueError if this
    environment variable is not a number.
    """
    name = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    share = os.environ.setdefault(name, str(GPU_SHARE))
    try:
        float(share or GPU_SHARE)
    except ValueError:
        raise ValueError(f"{name}={share!r}: must be a number, such as 0.9") from None


def _xla_flags(**added: str) -> dict[str, str]:
    """Adds flags to XLA_FLAGS, except those that it has; returns all its flags."""
    text = os.environ.get("XLA_FLAGS", "")
    flags = dict(re.findall(r"--(\w+)=?(\S*)", text))
    for name, value in added.items():
        if name not in flags:
            text += f" --{name}={value}"
    if added:
        os.environ["XLA_FLAGS"] = text.strip()
    return added | flags


def make_deterministic(workdir: pathlib.Path | None) -> None:
    """Sets XLA's flags so that GPU programs are deterministic, bit for bit.

    XLA stores in `workdir`, if given, which kernels it selects, and uses them again
    when the run resumes. Flags that XLA_FLAGS already has are not changed.
    """
    # The default is atomic additions.
    flags = _xla_flags(xla_gpu_deterministic_ops="true")
    # XLA selects kernels by timing them: store them for resumed runs.
    if workdir and "xla_gpu_per_fusion_autotune_cache_dir" not in flags:
        folder = str(workdir.absolute() / "autotune")
        _xla_flags(xla_gpu_per_fusion_autotune_cache_dir=folder)
        # Otherwise JAX replaces this folder by one inside the compilation cache.
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


def start_cpu_devices(cpu_devices: int, *, rows: int) -> None:
    """Configures virtual CPU devices that use several cores and do not deadlock.

    Call this function before JAX initializes its devices. `cpu_devices` is the number
    of devices, unless XLA_FLAGS sets another. 0 selects JAX_NUM_CPU_DEVICES, or else
    the largest divisor of `rows` (rows of a micro-batch) that is at most the number of
    cores.
    """
    cores = usable_cores()
    # XLA computes a batched dot, such as attention scores, on one core per device.
    divisors = (n for n in range(1, min(rows, cores) + 1) if rows % n == 0)
    # `jax.config.update` would override this variable of JAX.
    own = max(0, int(os.environ.get("JAX_NUM_CPU_DEVICES") or 0))
    count = cpu_devices or own or max(divisors)
    # XLA's default of 40 seconds is too short on a busy machine.
    flags = _xla_flags(xla_cpu_collective_call_terminate_timeout_seconds="1200")
    if _DEVICE_COUNT not in flags:
        jax.config.update("jax_num_cpu_devices", count)
    # A device that waits in a collective occupies a thread of the shared pool. With too
    # few threads, the devices deadlock until XLA aborts.
    os.environ.setdefault("NPROC", str(cores + 2 * count))
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def join_cpu_devices(mesh: Mesh) -> None:
    """Connects all groups of CPU devices that will communicate, in all processes.

    Every process must call this function before any other joint computation. Gloo
    connects a group at its first collective. This collective fails if one process
    arrives 30 seconds after another, such as after a longer compilation. Later
    collectives have no such limit.
    """
    if jax.process_count() == 1 or mesh.devices.flat[0].platform != "cpu":
        return
    shape, everywhere = mesh.devices.shape, PartitionSpec(*mesh.axis_names)
    ones = jax.make_array_from_callback(
        shape, NamedSharding(mesh, everywhere), lambda index: np.ones(shape)[index]
    )
    exchanges = []
    for count in range(1, len(shape) + 1):
        for axes in itertools.combinations(mesh.axis_names, count):
            remaining = (None if axis in axes else axis for axis in mesh.axis_names)
            exchange = jax.shard_map(
                lambda x, axes=axes: jax.lax.psum(x, axes),
                mesh=mesh,
                in_specs=everywhere,
                out_specs=PartitionSpec(*remaining),
            )
            exchanges.append(jax.jit(exchange).lower(ones).compile())
    client: Any = global_state.client
    client.wait_at_barrier("join_cpu_devices", 1000 * _JOIN_SECONDS)
    for exchange in exchanges:
        jax.block_until_ready(exchange(ones))
    multihost_utils.broadcast_one_to_all(np.int32(0))


def start_devices(c: RunConfig, workdir: pathlib.Path | None = None) -> None:
    """Configures JAX for a run; call this function before JAX is first used.

    A deterministic run stores in `workdir` which GPU kernels XLA has selected. Raises
    ValueError if the environment has a setting of JAX with which no run is possible.
    """
    for name, value, why in (
        ("jax_enable_x64", "True", "computes with 32-bit numbers"),
        ("jax_disable_jit", "True", "needs compiled programs"),
        ("jax_numpy_rank_promotion", "raise", "combines arrays of different ranks"),
        ("jax_numpy_dtype_promotion", "strict", "combines arrays of different types"),
        ("jax_transfer_guard", "disallow", "copies arrays to the devices"),
    ):
        if (own := str(getattr(jax.config, name))).startswith(value):
            raise ValueError(
                f"{name.upper()}={own}: a run {why}; unset this environment variable"
            )
    count, own_count = c.mesh.cpu_devices, _xla_flags().get(_DEVICE_COUNT)
    if own_count and count and own_count != str(count):
        raise ValueError(
            f"config.mesh.cpu_devices={count}: XLA_FLAGS has {_DEVICE_COUNT}"
            f"={own_count}; remove one of the two, or set both to the same number"
        )
    if c.model.dtype == "float32":
        # "default" is TF32 on GPUs (three digits) and a single bfloat16 pass on TPUs.
        jax.config.update("jax_default_matmul_precision", c.model.matmul_precision)
    if c.deterministic:
        make_deterministic(workdir)
    take_gpu_memory()
    rows = c.batch.micro_tokens // max(c.batch.row_lengths)
    start_cpu_devices(c.mesh.cpu_devices, rows=max(1, rows))


def keep_programs(folder: str) -> None:
    """Enables JAX's compilation cache in `folder`; does nothing for an empty string.

    The folder of the environment variable JAX_COMPILATION_CACHE_DIR is used instead, if
    it is set. If a local folder is not writable, prints a warning; JAX still reads
    programs there.
    """
    named = f"config.compiled={folder!r}"
    if own := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        folder, named = own, f"JAX_COMPILATION_CACHE_DIR={own!r}"
    path = os.path.expanduser(folder)
    if not path:
        return
    if "://" not in path:  # a bucket is not checked
        try:
            if path.startswith("~"):
                raise OSError(errno.ENOENT, "there is no home folder")
            os.makedirs(path, exist_ok=True)
            tempfile.TemporaryFile(dir=path).close()
        except OSError as error:
            print(
                f"WARNING: {named}: cannot be written"
                f" ({error.strerror}), so every start compiles missing programs again;"
                " set another folder",
                flush=True,
            )
            if not os.path.isdir(path):
                return
            warnings.filterwarnings("ignore", "Error writing persistent compilation")
    _report_damage_once(named)
    jax.config.update("jax_compilation_cache_dir", path)


def _report_damage_once(named: str) -> None:
    """Replaces JAX's warning about each unreadable program by one for the folder."""
    show = warnings.showwarning
    reported: list[Warning] = []

    def report(message, *args, **kwargs):
        if not str(message).startswith("Error reading persistent compilation"):
            show(message, *args, **kwargs)
        elif not reported:
            reported.append(message)
            print(
                f"WARNING: {named}: has programs that cannot be"
                " read, which every start compiles again; delete this folder, or set"
                " another",
                flush=True,
            )

    warnings.showwarning = report
