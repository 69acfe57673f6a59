"""Finds and connects the processes of a run with `jax.distributed`."""

import importlib.util
import os
import re
import socket
import threading
from typing import Any, NoReturn

import jax

# JAX has no public names for these two.
from jax._src.clusters import ClusterEnv
from jax._src.distributed import global_state

from rl import progress
from rl.errors import one_line
from rl.processes import group
from rl.processes.stopping import ERROR
from sharding.mesh import all_devices

_START_SECONDS = 300
# Environment variables that indicate several processes: by a count, by a list, or by
# being set.
_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "MEGASCALE_NUM_SLICES")
_LISTS = ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES")
_MARKS = ("JAX_COORDINATOR_ADDRESS", "JOB_COMPLETION_INDEX")
_TPU = "libtpu"
_FLAGS = "--coordinator, --num_processes and --process_id"


def start(
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    *,
    expected_errors: group.Errors,
) -> group.Processes:
    """Connects the processes of this run before JAX initializes its devices.

    The first three arguments are the flags of these names. If all are None, JAX reads
    the environment (SLURM, TPU pods, GKE, Open MPI, Kubernetes indexed jobs). If not
    all processes connect within 5 minutes, this process ends. Raises ValueError if a
    flag is invalid, the connection fails, or JAX finds no devices.
    """
    if num_processes == 1 and process_id in (None, 0):
        return group.SingleProcess()
    numbers = {"num_processes": num_processes, "process_id": process_id}
    given = {"coordinator": coordinator, **numbers}
    arguments: dict[str, Any] = {}
    source = " ".join(f"--{k}={v}" for k, v in given.items() if v is not None)
    if source:
        _check_flags(source, coordinator, num_processes, process_id)
        arguments = {"coordinator_address": coordinator, **numbers}
    elif not (source := _named_in_environment()):
        if importlib.util.find_spec("libtpu") is None:
            return group.SingleProcess()
        source = _TPU  # libtpu's metadata lists the processes of a pod
    # JAX's own timeout would abort with a page of text.
    deadline = threading.Timer(_START_SECONDS, _end_late, (source,))
    deadline.daemon = True
    deadline.start()
    try:
        if not _initialize(source, arguments):
            return group.SingleProcess()
        all_devices()  # the processes exchange their lists of devices
        processes: group.Processes = group.SingleProcess()
        if jax.process_count() > 1:
            leads = jax.process_index() == 0
            processes = (group.Leader if leads else group.Follower)(expected_errors)
        connected = len({device.process_index for device in jax.devices()})
        with processes:  # an error ends all of them
            if num_processes and connected != num_processes:
                raise ValueError(
                    f"--num_processes={num_processes}: the run has {connected}"
                    " process(es); give every process the same number"
                )
        if not processes.leads:
            progress.hush()
        return processes
    finally:
        deadline.cancel()


def _end_late(source: str) -> NoReturn:
    address = global_state.coordinator_address or ""  # "" until JAX has found it
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port or 0)), timeout=5).close()
        state = "answers"
    except OSError as error:
        state = f"cannot be reached ({one_line(error)})"
    group.end_process(
        ERROR,
        f"{source}: not all processes connected within {_START_SECONDS} seconds;"
        f" process 0 at {address or 'an unknown address'} {state}; check that each"
        " process was started and can connect to this address",
    )


def _named_in_environment() -> str:
    """Returns "NAME=VALUE" of a variable that indicates several processes, or ""."""
    one = ("", "0", "1")
    found = [name for name in _COUNTS if os.environ.get(name, "1") not in one]
    found += [name for name in _LISTS if "," in os.environ.get(name, "")]
    found += [name for name in _MARKS if name in os.environ]
    return f"{found[0]}={os.environ[found[0]]}" if found else ""


def _check_flags(
    source: str,
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
) -> None:
    """Raises ValueError if the flags of `start` are not valid."""
    if coordinator is None or num_processes is None or process_id is None:
        raise ValueError(f"{source}: {_FLAGS} must be given together")
    if num_processes < 1:
        raise ValueError(f"--num_processes={num_processes}: must be at least 1")
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"--process_id={process_id}: must lie in [0, {num_processes - 1}]"
            f" (--num_processes={num_processes})"
        )
    _check_address("--coordinator", coordinator, leads=process_id == 0)


def _find_arguments() -> dict[str, Any]:
    """Returns arguments of `jax.distributed.initialize` from the environment."""
    # JAX uses the GPU with the local number of the task. With --gpus-per-task, a task
    # sees only its own GPUs.
    visible = re.findall(r"[^,]+", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    per_task = os.environ.get("SLURM_GPUS_PER_TASK", "").rpartition(":")[2]
    own = [*range(len(visible))] if per_task == str(len(visible)) else None
    address, count, index, devices = ClusterEnv.auto_detect_unset_distributed_params(
        os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, own, None, _START_SECONDS
    )
    if address:
        _check_address("coordinator_address", address, leads=index == 0)
    return {
        "coordinator_address": address,
        "num_processes": count,
        "process_id": index,
        # For None, JAX reads this variable.
        "local_device_ids": None if os.getenv("JAX_LOCAL_DEVICE_IDS") else devices,
    }


def _check_address(name: str, address: str, *, leads: bool) -> None:
    """Raises ValueError for an invalid address, or one that process 0 cannot use."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(
            f"{name}={address!r}: must be HOST:PORT, such as 10.0.0.1:8476"
        )
    if not leads:
        return
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(
            ("", int(port)), family=family, dualstack_ipv6=both
        )
        server.close()  # JAX would crash if it could not listen
    except OSError as error:
        raise ValueError(
            f"{name}={address!r}: process 0 cannot listen on port {port}"
            f" ({os.strerror(error.errno or 0)}); give all processes another port (in"
            " clusters with JAX_COORDINATOR_PORT), and start only one process 0"
        ) from None


def _initialize(source: str, arguments: dict[str, Any]) -> bool:
    """Connects the processes; raises ValueError if that fails.

    Returns False if libtpu was the only sign of several processes, and finds no TPU.
    """
    # JAX's handler of SIGTERM would conflict with `StopSignals`.
    jax.config.update("jax_enable_preemption_service", False)
    # Otherwise, when a process dies, JAX aborts the others with a page of text.
    jax.config.update("jax_enable_recoverability", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # gRPC would ask the proxy of http_proxy or https_proxy to connect the processes.
    os.environ.setdefault("grpc_proxy", "")
    jax.config.update("jax_check_proxy_envs", False)
    try:
        jax.distributed.initialize(
            **(arguments or _find_arguments()),
            cluster_detection_method="deactivate",  # `_find_arguments` has done it
            initialization_timeout=2 * _START_SECONDS,
            heartbeat_timeout_seconds=group.HEARTBEAT_SECONDS,
        )
    except (ValueError, RuntimeError) as error:  # errors of JAX and of gRPC
        if source == _TPU and "coordinator_address should be" in str(error):
            return False  # libtpu is installed without a TPU
        raise ValueError(
            f"{source}: the processes could not be connected"
            f" ({one_line(error)[:300]}); give --num_processes=1 for a single process,"
            f" or correct values of {_FLAGS}"
        ) from None
    return True
