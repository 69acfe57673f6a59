"""vLLM's servers beside the trainer: what a publish costs, and what the client keeps.

`publish`: seconds from a policy on the trainer's devices to one that is served, of
which `sampler/` says the parts, beside writing as many bytes to shared memory and
reading them back, and how far the served log-probs are from the trainer's. `sample`:
tokens per second through our client, beside one offline `LLM.generate` on the same
prompts, in float32 on CPUs. Random weights. On a machine with GPUs

    CUDA_VISIBLE_DEVICES=0 python -m tools.bench served --dtype=bfloat16 --gpus=1

shows fidelity, publishes and speed of a server on GPU 1, with JAX on GPU 0.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import tempfile
import time

import jax
import jax.numpy as jnp

from configs import base
from models import hf
from models.config import Qwen2Config
from models.qwen2 import Params, Qwen2, init_params
from rl.hosts.devices import start_cpu_devices
from rl.hosts.sidecar import make_vllm_sampler
from rollout.types import PolicySampler
from rollout.vllm.sampler import PROBE_TOLERANCE
from sharding.mesh import make_mesh
from tools.bench import peers
from tools.bench.sampler import measure_sampler
from tools.bench.work import make_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # 97M parameters, as wide in proportion as the small Qwen2.5 models.
    sizes = dict(vocab=16384, layers=10, hidden=768, heads=12, kv_heads=2, mlp=3072)
    work = dict(groups=64, group_size=8, prompt=32, completion=64)
    peers.add_arguments(parser, "vllm", **sizes, **work)
    parser.add_argument("--dtype", choices=sorted(PROBE_TOLERANCE), default="float32")
    parser.add_argument("--gpus", default="", help="as config.rollout.vllm.devices")
    parser.add_argument("--weights", choices=("files", "memory"), default="files")
    parser.add_argument(
        "--eager", action="store_true", help="as config.rollout.vllm.enforce_eager"
    )


def run(arguments: argparse.Namespace) -> dict:
    """Measures; see the module's docstring."""
    shape = peers.shape_of(arguments)
    start_cpu_devices(arguments.devices, rows=64)
    mesh = make_mesh()
    config = Qwen2Config.from_hf(shape.hf_config())
    model = Qwen2(config, mesh=mesh, dtype=jnp.dtype(arguments.dtype))
    params = init_params(model, mesh, 0)
    specs = hf.tensor_specs(config, hf.DTYPES[arguments.dtype])
    nbytes = sum(math.prod(s) * kind.itemsize for s, kind in specs.values())
    result = {"machine": peers.machine(), "bytes": nbytes}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(shape.hf_config()))
        hf.save_folder(
            folder / "model", params, model.config, assets=folder, dtype="float32"
        )
        sampler = make_vllm_sampler(
            **base.get_config().rollout.vllm.to_dict()
            | {"python": arguments.vllm, "devices": arguments.gpus}
            | {"weights": arguments.weights, "enforce_eager": arguments.eager},
            model=model,
            folder=folder / "model",
            workdir=folder,
            prompt=make_tokens(shape)["prompts"][0].tolist(),
            max_model_len=shape.prompt + shape.completion,
            head_chunk=1024,
            in_flight="abort",
            carry=False,
        )
        with contextlib.closing(sampler):
            result["publish"] = _measure_publish(sampler, params, arguments.repeat)
            result["ours"] = measure_sampler(
                sampler, shape, ("sample",), arguments.repeat
            )
    result["publish"] |= {"dtype": arguments.dtype, "weights": arguments.weights}
    copies = [_copy_seconds(nbytes) for _ in range(arguments.repeat)]
    result["publish"]["copy_s"] = statistics.median(copies)
    arguments.only_ours |= bool(arguments.gpus) or arguments.dtype != "float32"
    return peers.compare(result, arguments, (shape, ("sample",)))


def _measure_publish(
    sampler: PolicySampler, params: Params, repeat: int
) -> dict[str, float]:
    """Medians of what the sampler says of each publish; each one is another policy."""
    found = []
    for version in range(repeat + 1):
        sampler.publish(jax.block_until_ready(params), version)
        found.append(sampler.metrics())
        params = jax.tree.map(lambda x: x * (1 + 2**-10), params)
    return {key: statistics.median(m[key] for m in found[1:]) for key in found[0]}


def _copy_seconds(nbytes: int) -> float:
    """Writing that many bytes to shared memory and reading them back."""
    data, path = os.urandom(nbytes), pathlib.Path(f"/dev/shm/copy-{os.getpid()}")
    began = time.perf_counter()
    path.write_bytes(data)
    path.read_bytes()
    seconds = time.perf_counter() - began
    path.unlink()
    return seconds
