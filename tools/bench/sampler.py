"""Measures the speed of the embedded sampler, and of transformers' `generate`.

`sample` samples one completion of full length per prompt at temperature 1,
`sample_top_p` with top-p 0.95, `greedy` at temperature 0. `mixed` samples `group_size`
completions per prompt that end at stop tokens. Weights are random, in float32.
"""

import argparse
import dataclasses
import itertools
from typing import Any

from models.config import DecoderConfig
from models.decoder import Decoder, init_params
from rl.processes.devices import start_cpu_devices
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.types import SamplingParams
from sharding.mesh import make_mesh
from tools.bench import peers, work
from tools.bench.work import Run, Shape, make_tokens, report, stop_ids


def add_arguments(parser: argparse.ArgumentParser) -> None:
    work.add_arguments(parser, groups=32)
    parser.add_argument("--slots", type=int, default=64)


def run(arguments: argparse.Namespace) -> dict:
    """Returns the measurements; see the module's docstring."""
    shape, repeat = work.shape_of(arguments), arguments.repeat
    # One completion per prompt, except for "mixed".
    works = {
        dataclasses.replace(shape, group_size=1): ("sample", "sample_top_p", "greedy"),
        shape: ("mixed",),
    }
    start_cpu_devices(0, rows=64)
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model = Decoder(DecoderConfig.from_hf(shape.hf_config()), mesh=mesh)
    params = init_params(model, mesh, 0)

    def measured(make_runs) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for each, names in works.items():
            tokens = make_tokens(each)
            runs = make_runs(each, tokens["prompts"])
            chosen = {name: runs[name] for name in names}
            rows |= report(chosen, each, tokens["lengths"], repeat)
        return rows

    def embedded(each: Shape, prompts) -> dict[str, Run]:
        slots = min(arguments.slots, each.rows)
        return _runs(model, params, each, prompts[:: each.group_size].tolist(), slots)

    result: dict[str, Any] = {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        work.THIS: measured(embedded),
    }
    if arguments.without_peers:
        return result
    return peers.compare(
        result, "transformers", lambda: measured(peers.transformers_sampling)
    )


def _runs(model, params, shape: Shape, prompts, slots: int) -> dict[str, Run]:
    layout = make_layout(
        model,
        slots=slots,
        prompt_length=shape.prompt,
        response_length=shape.completion,
    )
    sampler, seeds = JaxSampler(layout, params), itertools.count()
    full = SamplingParams(
        n=shape.group_size,
        max_tokens=shape.completion,
        stop_token_ids=(),
        ignore_stop=True,
    )

    def draw(**changes) -> int:
        changed = dataclasses.replace(full, **changes)
        groups = sampler.sample(prompts, changed, seed=next(seeds))
        return sum(len(c.token_ids) for group in groups for c in group)

    ends = tuple(stop_ids(shape))
    return {
        "sample": draw,
        "sample_top_p": lambda: draw(top_p=0.95),
        "greedy": lambda: draw(temperature=0.0),
        "mixed": lambda: draw(stop_token_ids=ends, ignore_stop=False),
    }
