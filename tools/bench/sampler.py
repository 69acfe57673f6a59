"""Measures the speed of the embedded sampler, and of transformers' `generate`.

There are four cases. `sample` samples one completion per prompt at temperature 1, of
the length --completion. `sample_top_p` does the same with top-p 0.95, and `greedy` at
temperature 0. `mixed` samples --group_size completions per prompt at temperature 1,
which may end earlier at stop tokens. Weights are random, in float32.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from models.decoder import init_params
from rl.processes.devices import start_cpu_devices
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.types import SamplingParams
from sharding.mesh import make_mesh
from tools.bench import work
from tools.bench.work import Shape

# Samples completions and returns the number of sampled tokens.
Sample = Callable[[SamplingParams], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    work.add_arguments(parser, groups=32)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument(
        "--without_peers", action="store_true", help="measure this project only"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    shape = work.shape_of(arguments)
    segments = work.make_segments(shape)[:: shape.group_size]
    prompts = np.stack([segment.token_ids[: shape.prompt] for segment in segments])
    start_cpu_devices(0, rows=64)

    def measured(sample: Sample) -> dict[str, dict[str, float]]:
        rows = {}
        for name, params in _cases(shape).items():
            run_case = functools.partial(sample, params)
            seconds, tokens = work.measure(run_case, repeat=arguments.repeat)
            rates = np.divide(tokens, seconds)
            medians = {"median_s": seconds, "tokens_per_s": rates}
            rows[name] = {key: float(np.median(x)) for key, x in medians.items()}
        return rows

    result = {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        work.THIS: measured(_this_project(shape, prompts, arguments.slots)),
    }
    if not arguments.without_peers:
        work.compare(
            result, "transformers", lambda: measured(_transformers(shape, prompts))
        )
    return result


def _cases(shape: Shape) -> dict[str, SamplingParams]:
    full = SamplingParams(
        max_tokens=shape.completion, stop_token_ids=(), ignore_stop=True
    )
    # 1/50 of all tokens: a random model stops after about 50 tokens.
    stop = range(shape.vocab - max(1, shape.vocab // 50), shape.vocab)
    return {
        "sample": full,
        "sample_top_p": dataclasses.replace(full, top_p=0.95),
        "greedy": dataclasses.replace(full, temperature=0.0),
        "mixed": SamplingParams(
            n=shape.group_size, max_tokens=shape.completion, stop_token_ids=tuple(stop)
        ),
    }


def _this_project(shape: Shape, prompts: np.ndarray, slots: int) -> Sample:
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model, _ = work.make_trainer(shape, mesh, dtype="float32")
    weights, seeds = init_params(model, mesh, 0), itertools.count()

    @functools.cache
    def sampler(n: int) -> JaxSampler:
        layout = make_layout(
            model,
            slots=min(slots, n * len(prompts)),
            prompt_length=shape.prompt,
            response_length=shape.completion,
        )
        return JaxSampler(layout, weights)

    def sample(params: SamplingParams) -> int:
        groups = sampler(params.n).sample(prompts.tolist(), params, seed=next(seeds))
        return sum(len(c.token_ids) for group in groups for c in group)

    return sample


def _transformers(shape: Shape, prompts: np.ndarray) -> Sample:
    import torch

    model = shape.transformers_model()
    ids = torch.tensor(prompts).long()

    @torch.no_grad()
    def sample(params: SamplingParams) -> int:
        options: dict[str, Any] = {"eos_token_id": [*params.stop_token_ids]}
        if params.ignore_stop:
            options = {"min_new_tokens": params.max_tokens}
        if params.temperature > 0:
            options |= {"do_sample": True, "top_k": 0, "top_p": params.top_p}
        new = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=params.max_tokens,
            num_return_sequences=params.n,
            **options,
        )[:, shape.prompt :]
        # Padding after the end of a completion has the id 0.
        return int((new != 0).sum())

    return sample
