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
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from models.config import DecoderConfig
from models.decoder import Decoder, init_params
from rl.processes.devices import start_cpu_devices
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.types import SamplingParams
from sharding.mesh import make_mesh
from tools.bench import work
from tools.bench.work import Shape

Runs = dict[str, Callable[[], int]]  # each run returns the number of sampled tokens


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

    def measured(runs: Runs) -> dict[str, dict[str, float]]:
        rows = {}
        for name, sample in runs.items():
            calls = work.measure(sample, repeat=arguments.repeat)
            rows[name] = {
                "median_s": statistics.median(seconds for seconds, _ in calls),
                "tokens_per_s": statistics.median(n / seconds for seconds, n in calls),
            }
        return rows

    result = {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        work.THIS: measured(_runs(shape, prompts, arguments.slots)),
    }
    if not arguments.without_peers:
        transformers = functools.partial(_transformers_runs, shape, prompts)
        work.compare(result, "transformers", lambda: measured(transformers()))
    return result


def _stop_ids(shape: Shape) -> list[int]:
    # 1/50 of all tokens: a random model stops after about 50 tokens.
    return list(range(shape.vocab - max(1, shape.vocab // 50), shape.vocab))


def _runs(shape: Shape, prompts: np.ndarray, slots: int) -> Runs:
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

    def sampling(n: int = 1, **options: Any) -> Callable[[], int]:
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
        "mixed": sampling(shape.group_size, stop_token_ids=tuple(_stop_ids(shape))),
    }


def _transformers_runs(shape: Shape, prompts: np.ndarray) -> Runs:
    import torch

    model = shape.transformers_model()
    ids = torch.tensor(prompts).long()

    @torch.no_grad()
    def generate(**options: Any) -> int:
        new = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=shape.completion,
            **options,
        )[:, shape.prompt :]
        # Padding after the end of a completion has the id 0.
        return int((new != 0).sum())

    full = {"min_new_tokens": shape.completion}
    drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0}
    group = {"num_return_sequences": shape.group_size, "eos_token_id": _stop_ids(shape)}
    return {
        "sample": lambda: generate(**full, **drawn),
        "sample_top_p": lambda: generate(**full, **drawn, top_p=0.95),
        "greedy": lambda: generate(**full, do_sample=False),
        "mixed": lambda: generate(**drawn, **group),
    }
