"""How JAX is started: what it takes of a GPU's memory, and how it uses a CPU."""

import itertools
import os
import pathlib
from typing import Any

import jax
import numpy as np
from jax._src.distributed import global_state  # its barrier has no public name
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from configs.base import RunConfig

_JOIN_SECONDS = 600
GPU_SHARE = 0.92
"""Of a GPU's memory what a run may have, and plans count on; JAX's own is 0.75."""


def take_gpu_memory() -> None:
    """Lets JAX have `GPU_SHARE` of a GPU's memory, unless the environment has a share.

    Must come before JAX first looks for devices.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", str(GPU_SHARE))


def make_deterministic(workdir: pathlib.Path | None) -> None:
    """Has XLA repeat a GPU program bit for bit, in this process and in later ones.

    XLA otherwise uses atomic additions where they are faster, and chooses kernels by
    timing them. Its choices are kept in `workdir`/autotune, if there is a workdir, so
    that a resumed run computes with the same kernels. Must come before JAX first looks
    for devices.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_deterministic_ops" not in flags:
        flags += " --xla_gpu_deterministic_ops=true"
    if workdir and "xla_gpu_per_fusion_autotune_cache_dir" not in flags:
        folder = workdir.absolute() / "autotune"
        flags += f" --xla_gpu_per_fusion_autotune_cache_dir={folder}"
        # JAX would put its own folder here, inside the cache of compiled programs.
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    os.environ["XLA_FLAGS"] = flags.strip()


def start_cpu_devices(cpu_devices: int, *, rows: int) -> None:
    """Makes virtual CPU devices that use all cores and never wait for ever.

    XLA runs a batched dot (attention's scores) on one core of a CPU device, so that
    several devices with the rows split between them use the cores that one leaves idle.
    Must come before JAX first looks for devices.

    Args:
      cpu_devices: how many; 0 takes the largest divisor of `rows` up to the cores.
      rows: of a micro-batch, to be split evenly.
    """
    cores = len(os.sched_getaffinity(0))
    count = cpu_devices
    if not count:
        count = max(n for n in range(1, min(rows, cores) + 1) if rows % n == 0)
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        jax.config.update("jax_num_cpu_devices", count)
    # A device that waits at a collective holds a thread of the pool in which the others
    # compute. With no thread to spare they wait for each other until XLA aborts.
    os.environ.setdefault("NPROC", str(cores + 2 * count))
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    # Waiting 40 seconds on a busy machine, XLA's default, does not mean a deadlock.
    timeout = "--xla_cpu_collective_call_terminate_timeout_seconds"
    if timeout not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {timeout}=1200".strip()


def join_cpu_devices(mesh: Mesh) -> None:
    """Connects the groups of CPU devices that will exchange data, all at one time.

    Gloo connects a group when it first exchanges something. Where one process comes
    there 30 seconds after another, as behind a longer compilation, the first gives up
    and the second waits for it for ever. A connected group just waits.

    Every process calls it, with the same mesh, before anything else that they do
    together. One process, or another platform, needs nothing.
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
            exchange = jax.shard_map(
                lambda x, axes=axes: jax.lax.psum(x, axes),
                mesh=mesh,
                in_specs=everywhere,
                out_specs=PartitionSpec(
                    *(None if axis in axes else axis for axis in mesh.axis_names)
                ),
            )
            exchanges.append(jax.jit(exchange).lower(ones).compile())
    client: Any = global_state.client
    client.wait_at_barrier("join_cpu_devices", 1000 * _JOIN_SECONDS)
    for exchange in exchanges:
        jax.block_until_ready(exchange(ones))
    multihost_utils.broadcast_one_to_all(np.int32(0))


def start_devices(c: RunConfig, workdir: pathlib.Path | None = None) -> None:
    """Configure JAX; call it before JAX is first used.

    Args:
      c: the run's config.
      workdir: where a deterministic run keeps XLA's choices; None: nowhere.
    """
    if c.model.dtype == "float32":
        # "default" is TF32 on GPUs (three digits), and one bfloat16 pass on TPUs.
        jax.config.update("jax_default_matmul_precision", c.model.matmul_precision)
    if c.deterministic:
        make_deterministic(workdir)
    rows = c.batch.micro_tokens // max(c.batch.row_lengths)
    take_gpu_memory()
    start_cpu_devices(c.mesh.cpu_devices, rows=max(1, rows))


def keep_programs(folder: str) -> None:
    """Keep compiled programs in a folder, from start to start; empty: keep none."""
    if folder:
        path = pathlib.Path(folder).expanduser()
        jax.config.update("jax_compilation_cache_dir", str(path))
