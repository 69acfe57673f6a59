"""Measures the speed of the update and of computing log-probabilities.

An update computes loss, gradient, gradient clipping and AdamW in float32, but not the
old log-probabilities. Rates count the tokens of each completion and its prompt, but no
padding. Shared prompts count once per completion.
"""

import argparse
import dataclasses
from typing import Any

import numpy as np

from models.decoder import init_params
from rl.groups.packing import padding_fraction
from rl.processes.devices import start_cpu_devices
from sharding.mesh import make_mesh
from sharding.rules import place, shards
from tools.bench import work
from tools.bench.work import SCALARS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    work.add_arguments(parser, repeat=7)
    parser.add_argument(
        "--row_length", type=int, default=0, help="tokens (0: PROMPT + COMPLETION)"
    )
    parser.add_argument("--micro_tokens", type=int, default=2048)
    parser.add_argument(
        "--no_sharing", action="store_true", help="repeat the prompt in each completion"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    shape = work.shape_of(arguments)
    segments = work.make_segments(shape)
    start_cpu_devices(0, rows=64)
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model, step = work.make_trainer(
        shape, mesh, dtype="float32", remat="none", attention="xla", head_chunk=256
    )
    batches = work.make_batches(
        shape,
        segments,
        row_length=arguments.row_length or shape.prompt + shape.completion,
        micro_tokens=arguments.micro_tokens,
        row_multiple=shards("batch", mesh),
        share_prompts=not arguments.no_sharing,
    )
    placed = [place(batch, step.rows) for batch in batches]
    state = step.init(init_params(model, mesh, 0))

    def logprobs() -> Any:
        return [step.score(state.params, batch, SCALARS) for batch in placed]

    def update() -> Any:
        nonlocal state
        state, stats = step.update(state, placed, SCALARS)
        return stats

    lengths = np.array([len(segment.token_ids) for segment in segments])
    forward = shape.forward_flops(lengths)
    figures = {}
    for call, flops in ((logprobs, forward), (update, 3 * forward)):
        seconds = work.median_seconds(call, repeat=arguments.repeat)
        figures[call.__name__] = {
            "median_s": seconds,
            "tokens_per_s": int(lengths.sum()) / seconds,
            "gflop_per_s": flops / seconds / 1e9,
        }
    return {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        "peak_gflop_per_s": work.matmul_peak() / 1e9,
        "rows": [batch.token_ids.shape for batch in batches],
        "padding": padding_fraction(batches),
        work.THIS: figures,
    }
