"""The vLLM servers of a run: where they go, how weights reach them, how they are held
to the trainer's own log-probabilities.
"""

import collections
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from configs.schema import Range
from models import hf
from models.config import Qwen2Config
from models.qwen2 import Params, Qwen2
from rl.types import Batch
from rl.update.objective import token_logprobs
from rollout.types import PolicySampler
from rollout.vllm.sampler import PROBE_DRAW, PROBE_TOLERANCE, Probe, VllmSampler
from rollout.vllm.server import ServerSpec, VllmServer, check_devices
from rollout.vllm.weight_folder import WeightFolder, choose_root
from sharding.rules import laid_out, place, shards

_PROBE_LENGTH = 300
# Of vLLM 0.32. Another ends its engine with the first request.
_CPU_HEAD_WIDTHS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def make_vllm_sampler(
    *,
    model: Qwen2,
    folder: pathlib.Path,
    workdir: pathlib.Path,
    prompt: Sequence[int],
    max_model_len: int,
    head_chunk: int,
    in_flight: str,
    carry: bool,
    python: str,
    url: str,
    dtype: str,
    devices: str,
    gpu_memory_utilization: float,
    cpu_kv_cache_gib: int,
    max_num_seqs: Annotated[int, Range(2)],
    enforce_eager: bool,
    host: str,
    port: int,
    weight_dir: str,
    probe_tolerance: float,
    start_seconds: float,
    sync_seconds: float,
    stall_seconds: float,
    max_restarts: int,
) -> PolicySampler:
    """Starts or attaches to servers for `model`; nothing is served before a publish.

    With several processes the first one talks to the servers.

    Args:
      model: of the trainer, with its mesh.
      folder: the base model's.
      workdir: gets the servers' logs.
      prompt: some prompt of the data, from which the probe is made.
      max_model_len: longest prompt and completion together.
      head_chunk: see `rl.update.step.make_step`.
      in_flight, carry: see `VllmSampler`.
      Others: the section `rollout.vllm` of the config, explained in configs/base.py.

    Raises:
      ValueError: a setting that does not fit; names it.
      OSError: no room for the weights.
    """
    dtype = dtype or str(np.dtype(model.dtype))
    if dtype not in PROBE_TOLERANCE:
        raise ValueError(
            f"config.rollout.vllm.dtype={dtype!r}: must be one of"
            f" {sorted(PROBE_TOLERANCE)}"
        )

    def export(params):
        return hf.export_tensors(params, model.config, hf.DTYPES[dtype])

    urls = [part.strip() for part in url.split(",") if part.strip()]
    # The leader's alone: it starts them, and its machine's GPUs are meant.
    attached = urls or jax.process_index()
    sets = [] if attached else device_sets(devices, gpu_memory_utilization)
    probe = make_probe(
        model,
        max_model_len=max_model_len,
        head_chunk=head_chunk,
        servers=len(urls) or len(sets),
    )
    if jax.process_index():
        return FollowerSampler(export, probe)
    api_key = os.environ.get("VLLM_API_KEY", "")
    specs = hf.tensor_specs(model.config, hf.DTYPES[dtype])
    weights = WeightFolder(
        choose_root(weight_dir, specs, fallback=workdir / "weights"),
        export=export,
        specs=specs,
        dtype=dtype,
    )
    return VllmSampler(
        servers=make_servers(
            sets,
            python=python,
            key="config.rollout.vllm.python",
            folder=folder,
            logs=workdir,
            port=port,
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            gpu_memory_utilization=gpu_memory_utilization or 0.9,
            cpu_kv_cache_gib=cpu_kv_cache_gib,
            host=host,
            api_key=api_key,
            enforce_eager=enforce_eager,
        ),
        urls=urls,
        api_key=api_key,
        weights=weights,
        probe=probe,
        probe_prompt=probe_prompt(prompt, max_model_len),
        probe_tolerance=probe_tolerance or PROBE_TOLERANCE[dtype],
        max_model_len=max_model_len,
        in_flight=in_flight,
        carry=carry,
        # One slot stays free for the probe.
        concurrency=max_num_seqs - 1,
        start_seconds=start_seconds,
        sync_seconds=sync_seconds,
        stall_seconds=stall_seconds,
        max_restarts=max_restarts,
    )


def make_servers(
    sets: Sequence[tuple[int, ...]],
    *,
    python: str,
    key: str,
    folder: pathlib.Path,
    logs: pathlib.Path,
    port: int = 0,
    **spec: Any,
) -> list[VllmServer]:
    """Servers of one model, not yet started, each with a log and a port of its own.

    Args:
      sets: the GPUs of each server; see `device_sets`.
      python: interpreter of the environment that holds vLLM.
      key: the name of `python` where the user gives it, for an error.
      folder: the model's.
      logs: folder of the logs, `vllm-0.log` and on.
      port: of the first; 0 picks free ones.
      spec: what else a `ServerSpec` holds.

    Raises:
      ValueError: no such interpreter, or a model that vLLM cannot run here.
    """
    if sets and not pathlib.Path(python).is_file():
        raise ValueError(
            f"{key}={python!r}: no such file; `make vllm` builds the environment, or"
            " give the url of servers that run already"
        )
    head_dim = Qwen2Config.from_folder(folder).head_dim
    if () in sets and head_dim not in _CPU_HEAD_WIDTHS:
        raise ValueError(
            f"the model's head width is {head_dim}; vLLM's attention on CPUs has"
            f" kernels for {_CPU_HEAD_WIDTHS}"
        )
    return [
        VllmServer(
            ServerSpec(
                python=str(pathlib.Path(python).absolute()),
                model=str(folder.absolute()),
                devices=gpus,
                port=port + i if port else 0,
                **spec,
            ),
            log_file=logs / f"vllm-{i}.log",
        )
        for i, gpus in enumerate(sets)
    ]


def device_sets(devices: str, fraction: float) -> list[tuple[int, ...]]:
    """The GPUs of each server to start; one empty set means one server on the CPU.

    Args:
      devices: sets separated by semicolons, "0;1" or "0,1;2,3"; empty takes each GPU
        of the machine that JAX does not hold.
      fraction: of a GPU's memory for vLLM; 0 where the user has not said.

    Raises:
      ValueError: JAX holds every GPU, or shares one without both fractions being set.
    """
    machine = _gpus_of_machine()
    own = _gpus_of_jax()
    if devices:
        try:
            sets = [
                tuple(int(gpu) for gpu in part.split(","))
                for part in devices.split(";")
            ]
        except ValueError:
            raise ValueError(
                f"config.rollout.vllm.devices={devices!r}: expected ids such as"
                " '0;1' or '0,1;2,3'"
            ) from None
    elif machine and jax.process_count() > 1:
        raise ValueError(
            "config.rollout.vllm.devices='': with several processes nobody knows which"
            " GPUs are left; give devices, or config.rollout.vllm.url"
        )
    elif machine:
        sets = [(gpu,) for gpu in machine if gpu not in own]
        if not sets:
            raise ValueError(
                f"JAX holds every GPU of this machine ({machine}): leave some to vLLM"
                " with CUDA_VISIBLE_DEVICES, or share with config.rollout.vllm.devices"
            )
    else:
        sets = [()]
    share = os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")
    check_devices(
        sets,
        own,
        server_fraction=fraction or None,
        trainer_fraction=float(share) if share else None,
    )
    return sets


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
    return [int(line) for line in listed.stdout.split()]


def _gpus_of_jax() -> tuple[int, ...]:
    """Ids, in the machine's numbering, of the GPUs that this process holds.

    Raises:
      ValueError: the environment names them in another way than by number.
    """
    held = [d.local_hardware_id for d in jax.local_devices() if d.platform == "gpu"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible and held else []
    if not all(name.strip().isdigit() for name in names):
        raise ValueError(
            f"CUDA_VISIBLE_DEVICES={visible}: give numbers, as `nvidia-smi -L` lists"
            " them, by which vLLM's GPUs are told from the trainer's"
        )
    return tuple(int(names[i]) if names else i for i in held)


def probe_prompt(prompt: Sequence[int], max_model_len: int) -> list[int]:
    """A prompt, over and over, until it fills some blocks of a key-value cache."""
    length = max(1, min(_PROBE_LENGTH, max_model_len - PROBE_DRAW.max_tokens))
    return (list(prompt) * -(-length // len(prompt)))[:length]


def make_probe(
    model: Qwen2, *, max_model_len: int, head_chunk: int, servers: int
) -> Probe:
    """The trainer's log-probs of sequences, at temperature 1, by its own forward.

    With several processes all of them call it, and the first one's sequences count.

    Args:
      model: of the trainer, with its mesh.
      max_model_len: longest sequence.
      head_chunk: see `rl.update.step.make_step`.
      servers: most sequences of one call; every process must have the same number.
    """
    mesh = model.mesh
    rows = laid_out(mesh, "batch")
    length = min(_PROBE_LENGTH + PROBE_DRAW.max_tokens, max_model_len)
    multiple = shards("batch", mesh)
    servers = int(multihost_utils.broadcast_one_to_all(np.int32(servers)))
    shape = -(-servers // multiple) * multiple, length

    def logprobs(params, batch):
        scored, _ = token_logprobs(
            model, params, batch, temperature=1.0, mesh=mesh, chunk=head_chunk
        )
        return scored

    run = jax.jit(logprobs, out_shardings=laid_out(mesh))

    def probe(params, sequences):
        ids, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = sequence
            segments[row, : len(sequence)] = 1
        ids, segments = multihost_utils.broadcast_one_to_all((ids, segments))
        batch = Batch.padding(*shape).replace(
            token_ids=ids,
            positions=np.broadcast_to(np.arange(length, dtype=np.int32), shape),
            segment_ids=segments,
            loss_mask=segments > 0,
        )
        found = np.asarray(run(params, place(batch, rows)))
        return [found[row, : len(s)] for row, s in enumerate(sequences)]

    return probe


class FollowerSampler:
    """A process beside the one that talks to the servers.

    A publish gathers every tensor and scores the probe on all devices: it does its part
    of both, and is asked for nothing else.
    """

    def __init__(self, export: Callable[[Params], Iterable], probe: Probe):
        self._export, self._probe = export, probe

    def publish(self, params: Params, version: int) -> None:
        collections.deque(self._export(params), maxlen=0)
        self._probe(params, [])

    def sample(self, prompts, params, **how):
        raise RuntimeError("the first process samples")

    def make_room(self) -> None:
        """Holds nothing."""

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Holds nothing."""
