"""How JAX is started on a CPU; means nothing to GPUs and TPUs."""

import os

import jax


def start_cpu_devices(count: int, *, rows: int) -> None:
    """Makes virtual CPU devices that use all cores and never wait for ever.

    XLA runs a batched dot (attention's scores) on one core of a CPU device, so that
    several devices with the rows split between them use the cores that one leaves idle.
    Must come before JAX first looks for devices.

    Args:
      count: of devices; 0 takes the largest divisor of `rows` up to the cores.
      rows: of a micro-batch, to be split evenly.
    """
    cores = len(os.sched_getaffinity(0))
    if not count:
        count = max(n for n in range(1, min(rows, cores) + 1) if rows % n == 0)
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        jax.config.update("jax_num_cpu_devices", count)
    # A device that waits at a collective holds a thread of the pool in which the others
    # compute. With no thread to spare they wait for each other until XLA aborts.
    os.environ.setdefault("NPROC", str(cores + 2 * count))
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    # What merely waits for a busy machine is no deadlock after XLA's 40 seconds.
    timeout = "--xla_cpu_collective_call_terminate_timeout_seconds"
    if timeout not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {timeout}=1200".strip()
