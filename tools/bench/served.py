"""vLLM's servers beside the trainer: what a publish costs, and what the client keeps.

`publish`: seconds from a policy on the trainer's devices to one that is served, of
which `sampler/` says the parts, beside writing as many bytes to shared memory and
reading them back. `sample`: tokens per second through our client, beside one offline
`LLM.generate` on the same prompts. fp32, random weights.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import tempfile
import time

import jax

from configs import base
from models import hf
from models.config import Qwen2Config
from models.qwen2 import Params, Qwen2, init_params
from rl.hosts.devices import start_cpu_devices
from rl.hosts.sidecar import make_vllm_sampler
from rollout.types import PolicySampler, SamplingParams
from sharding.mesh import make_mesh
from tools.bench import peers
from tools.bench.work import Shape, make_tokens, measure, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # 97M parameters, as wide in proportion as the small Qwen2.5 models.
    sizes = dict(vocab=16384, layers=10, hidden=768, heads=12, kv_heads=2, mlp=3072)
    work = dict(groups=64, group_size=8, prompt=32, completion=64)
    peers.add_shape_arguments(parser, **sizes, **work)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--devices", type=int, default=0, help="on a CPU; 0: cores")
    peers.add_peer_arguments(parser, "vllm")


def run(arguments: argparse.Namespace) -> dict:
    """Measures; see the module's docstring."""
    shape = peers.shape_of(arguments)
    start_cpu_devices(arguments.devices, rows=64)
    tokens = make_tokens(shape)
    mesh = make_mesh()
    model = Qwen2(Qwen2Config.from_hf(shape.hf_config()), mesh=mesh)
    params = init_params(model, mesh, 0)
    nbytes = sum(x.nbytes for x in jax.tree.leaves(params))
    result = {"machine": peers.machine(), "bytes": nbytes}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(shape.hf_config()))
        hf.save_folder(
            folder / "model", params, model.config, assets=folder, dtype="float32"
        )
        sampler = make_vllm_sampler(
            **base.get_config().rollout.vllm.to_dict() | {"python": arguments.vllm},
            model=model,
            folder=folder / "model",
            workdir=folder,
            prompt=tokens["prompts"][0].tolist(),
            max_model_len=shape.prompt + shape.completion,
            head_chunk=1024,
            in_flight="abort",
        )
        with contextlib.closing(sampler):
            result["publish"] = _measure_publish(sampler, params, arguments.repeat)
            result["ours"] = {"sample": _measure_sample(sampler, shape, arguments)}
    copies = [_copy_seconds(nbytes) for _ in range(arguments.repeat)]
    result["publish"]["copy_s"] = statistics.median(copies)
    for peer, python in peers.installed(arguments):
        result[peer] = peers.measure(
            peer, python, ("sample",), shape, tokens, arguments.repeat
        )
    return peers.with_ratios(result)


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


def _measure_sample(sampler: PolicySampler, shape: Shape, arguments) -> dict:
    prompts = make_tokens(shape)["prompts"][:: shape.group_size].tolist()
    params = SamplingParams(
        n=shape.group_size,
        max_tokens=shape.completion,
        stop_token_ids=(),
        ignore_stop=True,
    )
    seeds = iter(range(10**6))

    def draw():
        groups = sampler.sample(prompts, params, seed=next(seeds))
        return sum(len(c.token_ids) for group in groups for c in group)

    return report(measure(draw, repeat=arguments.repeat, warm_up=1))
