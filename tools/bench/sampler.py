"""Measures the embedded sampler, and those of Tunix and transformers (TRL).

`sample` draws one completion of full length per row at T = 1, `sample_top_p` with top-p
0.95, `greedy` at T = 0. `mixed` draws every prompt `group_size` times and stops at stop
tokens; useful tokens count. fp32, random weights. Peers that are not installed are left
out.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Sequence

from models.config import DecoderConfig
from models.decoder import Decoder, init_params
from rl.processes.devices import start_cpu_devices
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.types import Sampler, SamplingParams
from sharding.mesh import make_mesh
from tools.bench import peers
from tools.bench.work import Shape, make_tokens, measure, report, stop_ids


def add_arguments(parser: argparse.ArgumentParser) -> None:
    peers.add_arguments(parser, "tunix", "trl", groups=32)
    parser.add_argument("--slots", type=int, default=64)


def run(arguments: argparse.Namespace) -> dict:
    """Measures; see the module's docstring."""
    shape = peers.shape_of(arguments)
    # The prompts once, then each of them group_size times.
    once = dataclasses.replace(shape, group_size=1)
    works = (once, ("sample", "sample_top_p", "greedy")), (shape, ("mixed",))
    start_cpu_devices(arguments.devices, rows=64)
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model = Decoder(DecoderConfig.from_hf(shape.hf_config()), mesh=mesh)
    params = init_params(model, mesh, 0)
    ours: dict[str, dict] = {}
    for of_shape, what in works:
        layout = make_layout(
            model,
            slots=min(arguments.slots, of_shape.rows),
            prompt_length=of_shape.prompt,
            response_length=of_shape.completion,
            common=of_shape.page,
        )
        sampler = JaxSampler(layout, params)
        ours |= measure_sampler(sampler, of_shape, what, arguments.repeat)
    result = {
        "shape": dataclasses.asdict(shape),
        "machine": peers.machine(),
        "ours": ours,
    }
    return peers.compare(result, arguments, *works)


def measure_sampler(
    sampler: Sampler, shape: Shape, what: Sequence[str], repeat: int
) -> dict[str, dict]:
    """A report by measurement; see the module's docstring."""
    tokens = make_tokens(shape)
    prompts = tokens["prompts"][:: shape.group_size].tolist()
    whole = SamplingParams(
        n=shape.group_size,
        max_tokens=shape.completion,
        stop_token_ids=(),
        ignore_stop=True,
    )
    ends = tuple(stop_ids(shape))
    kinds = {
        "sample": whole,
        "sample_top_p": dataclasses.replace(whole, top_p=0.95),
        "greedy": dataclasses.replace(whole, temperature=0.0),
        "mixed": dataclasses.replace(whole, stop_token_ids=ends, ignore_stop=False),
    }
    seeds = itertools.count()

    def draw(params):
        groups = sampler.sample(prompts, params, seed=next(seeds))
        return sum(len(c.token_ids) for group in groups for c in group)

    timings = {
        name: measure(functools.partial(draw, kinds[name]), repeat=repeat)
        for name in what
    }
    return report(timings, shape, tokens["lengths"])
