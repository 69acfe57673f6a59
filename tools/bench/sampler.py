"""Measures the speed of the embedded sampler, and of transformers' `generate`.

`sample` samples one completion of full length per prompt at temperature 1,
`sample_top_p` with top-p 0.95, `greedy` at temperature 0. `mixed` samples `group_size`
completions per prompt, which may end at stop tokens. Weights are random, in float32.
"""

import argparse
import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

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
    shape = work.shape_of(arguments)
    tokens = make_tokens(shape)
    prompts = tokens["prompts"][:: shape.group_size]
    start_cpu_devices(0, rows=64)

    def measured(runs: dict[str, Run]) -> dict[str, dict]:
        return report(runs, shape, tokens["lengths"], arguments.repeat)

    result = {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        work.THIS: measured(_runs(shape, prompts, arguments.slots)),
    }
    if arguments.without_peers:
        return result
    return peers.compare(
        result,
        "transformers",
        lambda: measured(peers.transformers_sampling(shape, prompts)),
    )


def _runs(shape: Shape, prompts: np.ndarray, slots: int) -> dict[str, Run]:
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model = Decoder(DecoderConfig.from_hf(shape.hf_config()), mesh=mesh)
    params, seeds = init_params(model, mesh, 0), itertools.count()

    @functools.cache
    def sampler(n: int) -> JaxSampler:
        layout = make_layout(
            model,
            slots=min(slots, n * len(prompts)),
            prompt_length=shape.prompt,
            response_length=shape.completion,
        )
        return JaxSampler(layout, params)

    def sampling(n: int = 1, **options) -> Run:
        settings = SamplingParams(n=n, max_tokens=shape.completion, **options)

        def sample() -> int:
            groups = sampler(n).sample(prompts.tolist(), settings, seed=next(seeds))
            return sum(len(c.token_ids) for group in groups for c in group)

        return sample

    full: dict[str, Any] = {"stop_token_ids": (), "ignore_stop": True}
    return {
        "sample": sampling(**full),
        "sample_top_p": sampling(**full, top_p=0.95),
        "greedy": sampling(**full, temperature=0.0),
        "mixed": sampling(shape.group_size, stop_token_ids=tuple(stop_ids(shape))),
    }
