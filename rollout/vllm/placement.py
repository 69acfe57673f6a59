"""Assigns the GPUs of a machine to vLLM servers."""

import collections
import dataclasses
import os
import pathlib
import subprocess
from collections.abc import Sequence

import jax

from rollout.vllm.server import ServerProcess, ServerSpec


def make_servers(
    spec: ServerSpec, sets: Sequence[tuple[int, ...]], *, key: str, logs: pathlib.Path
) -> list[ServerProcess]:
    """Returns servers of one model, which are not started yet.

    Args:
      sets: the GPUs of each server; see `device_sets`.
      key: the flag or config key that sets `spec.python`, for error messages.
      logs: the folder of the logs `vllm-0.log`, `vllm-1.log` and so on.
    """
    if sets and not pathlib.Path(spec.python).is_file():
        raise ValueError(
            f"{key}={spec.python!r}: no such file; run `make vllm` to build the"
            " environment, or give running servers in config.rollout.vllm.url or --url"
        )
    return [
        ServerProcess(
            dataclasses.replace(spec, devices=gpus), log_file=logs / f"vllm-{i}.log"
        )
        for i, gpus in enumerate(sets)
    ]


def device_sets(devices: str, fraction: float) -> list[tuple[int, ...]]:
    """Returns the GPUs of each server to start; an empty set means a server on the CPU.

    Args:
      devices: the GPU ids of each server, separated by semicolons: "0;1" or "0,1;2,3".
        If empty, each GPU that JAX does not use gets a server; if JAX uses none, each
        GPU in CUDA_VISIBLE_DEVICES. A machine without GPUs gets a server on the CPU.
      fraction: the share of a GPU's memory for vLLM; 0 if the user has not set it.

    Raises:
      ValueError: `devices` is malformed or lists a GPU twice; no GPU is free, or the
        free ones are not known; or JAX and vLLM use the same GPU, and their shares of
        its memory are not both set, or are more than 1 together.
    """
    machine, own = _gpus_of_machine(), _gpus_of_jax()
    if machine and not devices and not own and (visible := _visible()):
        machine = [gpu for gpu in machine if gpu in visible]
    if devices:
        try:
            sets = [
                tuple(int(gpu) for gpu in part.split(","))
                for part in devices.split(";")
            ]
        except ValueError:
            raise ValueError(
                f"config.rollout.vllm.devices or --devices={devices!r}: must be GPU ids"
                " such as '0;1' or '0,1;2,3'"
            ) from None
    elif machine and jax.process_count() > 1:
        raise ValueError(
            "config.rollout.vllm.devices='': with several processes, set it or"
            " config.rollout.vllm.url, because the free GPUs are not known"
        )
    elif machine:
        sets = [(gpu,) for gpu in machine if gpu not in own]
        if not sets:
            raise ValueError(
                f"JAX uses all GPUs of this machine ({machine}): leave some to vLLM"
                " with CUDA_VISIBLE_DEVICES, or set config.rollout.vllm.devices or"
                " --devices to share them"
            )
    else:
        sets = [()]
    _check_shared(sets, own, fraction)
    return sets


def _check_shared(
    sets: Sequence[tuple[int, ...]], own: Sequence[int], fraction: float
) -> None:
    """Checks that no GPU is listed twice, and that JAX and vLLM fit on a common GPU."""
    taken = collections.Counter(gpu for gpus in sets for gpu in gpus)
    if twice := sorted(gpu for gpu, count in taken.items() if count > 1):
        raise ValueError(
            f"config.rollout.vllm.devices or --devices: lists the GPU ids {twice} more"
            " than once; list each GPU for one vLLM server"
        )
    shared = sorted(taken.keys() & set(own))
    share_of_jax = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION") or 0)
    if shared and not (fraction and share_of_jax and fraction + share_of_jax <= 1):
        raise ValueError(
            f"both JAX and vLLM use GPUs {shared}: give them disjoint sets"
            " (CUDA_VISIBLE_DEVICES and config.rollout.vllm.devices or --devices), or"
            f" set both config.rollout.vllm.gpu_memory_utilization (now {fraction}) and"
            f" XLA_PYTHON_CLIENT_MEM_FRACTION (now {share_of_jax or 'unset'}) to shares"
            " of a GPU's memory, with a sum of at most 1"
        )


def _gpus_of_machine() -> list[int]:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    # Without a GPU, some versions print "No devices were found" and have status 0.
    return [int(word) for word in listed.stdout.split() if word.isdigit()]


def _gpus_of_jax() -> tuple[int, ...]:
    """Returns the ids of the GPUs that this process uses, as in `nvidia-smi`."""
    held = [d.local_hardware_id for d in jax.local_devices() if d.platform == "gpu"]
    visible = _visible() if held else []
    return tuple(visible[i] if visible else i for i in held)


def _visible() -> list[int]:
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not all(name.strip().isdigit() for name in names.split(",") if names):
        raise ValueError(
            f"CUDA_VISIBLE_DEVICES={names}: must contain the numbers that `nvidia-smi"
            " -L` lists; other names do not show which GPUs are free for vLLM"
        )
    return [int(name) for name in names.split(",") if names]
