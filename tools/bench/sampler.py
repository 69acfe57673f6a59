"""The embedded sampler beside Tunix's, transformers' (TRL) and vLLM's.

`sample`: one completion of full length for each of the rows, T = 1; `sample_top_p`
likewise at 0.95 and `greedy`; `mixed`: every prompt `group_size` times, ending when the
model draws one of its stop tokens, useful tokens counted. fp32, random weights. Peers
run in environments of their own and are left out where there are none.
"""

import argparse
import dataclasses

import numpy as np

from models.config import Qwen2Config
from models.qwen2 import Qwen2, init_params
from rl.hosts.devices import start_cpu_devices
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.types import SamplingParams
from sharding.mesh import make_mesh
from tools.bench import peers
from tools.bench.work import Shape, make_tokens, measure, report, stop_ids

_WHOLE = ("sample", "sample_top_p", "greedy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    peers.add_shape_arguments(parser, groups=32)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--devices", type=int, default=0, help="on a CPU; 0: cores")
    peers.add_peer_arguments(parser, "tunix", "trl", "vllm")


def run(arguments: argparse.Namespace) -> dict:
    """Measures; see the module's docstring."""
    shape = peers.shape_of(arguments)
    # The prompts once, then each of them group_size times.
    once = dataclasses.replace(shape, group_size=1)
    start_cpu_devices(arguments.devices, rows=64)
    ours = {
        **_measure_ours(arguments, once, _WHOLE),
        **_measure_ours(arguments, shape, ("mixed",)),
    }
    result = {
        "shape": dataclasses.asdict(shape),
        "machine": peers.machine(),
        "ours": ours,
    }
    for name, python in peers.installed(arguments):
        result[name] = {}
        for of_shape, what in ((once, _WHOLE), (shape, ("mixed",))):
            result[name] |= peers.measure(
                name, python, what, of_shape, make_tokens(of_shape), arguments.repeat
            )
    return peers.with_ratios(result)


def _measure_ours(arguments, shape: Shape, what) -> dict:
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model = Qwen2(Qwen2Config.from_hf(shape.hf_config()), mesh=mesh)
    layout = make_layout(model, slots=arguments.slots)
    sampler = JaxSampler(layout, init_params(model, mesh, 0))
    prompts = make_tokens(shape)["prompts"][:: shape.group_size]
    common = dict(n=shape.group_size, max_tokens=shape.completion)
    whole = dict(stop_token_ids=(), ignore_stop=True)
    kinds = {
        "sample": SamplingParams(**common, **whole),
        "sample_top_p": SamplingParams(**common, **whole, top_p=0.95),
        "greedy": SamplingParams(**common, **whole, temperature=0.0),
        "mixed": SamplingParams(**common, stop_token_ids=tuple(stop_ids(shape))),
    }
    seeds = iter(range(10**6))

    def draw(params):
        groups = sampler.sample(prompts.tolist(), params, seed=next(seeds))
        return int(np.sum([len(c.token_ids) for group in groups for c in group]))

    return {
        name: report(measure(lambda p=kinds[name]: draw(p), repeat=arguments.repeat))
        for name in what
    }
