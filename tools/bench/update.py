"""Measures the speed of the update and of computing log-probabilities.

An update computes loss, gradient, gradient clipping and AdamW in float32, but not the
old log-probabilities. Rates count the tokens of each completion and its prompt, but no
padding. Shared prompts count once per completion.
"""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from models.decoder import init_params
from rl.groups.packing import pack_segments, padding_fraction, weigh
from rl.processes.devices import start_cpu_devices
from rl.types import Batch
from sharding.mesh import make_mesh
from sharding.rules import put_sharded, shards
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
    packed = pack_segments(
        segments,
        row_lengths=(arguments.row_length or shape.prompt + shape.completion,),
        micro_tokens=arguments.micro_tokens,
        row_multiple=shards("batch", mesh),
        share_prompts=not arguments.no_sharing,
    )
    batches = weigh(packed, aggregation="token", constant=shape.completion)
    lengths = np.array([len(segment.token_ids) for segment in segments])
    calls = make_calls(
        shape, mesh, batches, dtype="float32", remat="none", head_chunk=256
    )
    return {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        "peak_gflop_per_s": work.matmul_peak() / 1e9,
        "rows": [batch.token_ids.shape for batch in batches],
        "padding": padding_fraction(batches),
        work.THIS: {
            name: figures(shape, lengths, name, call, arguments.repeat)
            for name, call in calls.items()
        },
    }


def make_calls(
    shape: work.Shape, mesh: Mesh, batches: Sequence[Batch], **options: Any
) -> dict[str, Callable[[], object]]:
    """Returns a function for the log-probabilities of `batches`, and one for an update.

    `options` sets keys of `config.model`.
    """
    model, step = work.make_trainer(shape, mesh, **options)
    placed = [put_sharded(batch, step.rows) for batch in batches]
    state = step.init(init_params(model, mesh, 0))

    def logprobs() -> object:
        return [step.score(state.params, batch, SCALARS) for batch in placed]

    def update() -> object:
        nonlocal state
        state, stats = step.update(state, placed, SCALARS)
        return stats

    return {"logprobs": logprobs, "update": update}


def figures(
    shape: work.Shape,
    lengths: np.ndarray,
    name: str,
    call: Callable[[], object],
    repeat: int = 5,
) -> dict[str, float]:
    """Times a function of `make_calls`; `lengths` are those of the texts, in tokens."""
    seconds = work.median_seconds(call, repeat=repeat)
    flops = shape.forward_flops(lengths) * (3 if name == "update" else 1)
    return {
        "median_s": seconds,
        "tokens_per_s": int(lengths.sum()) / seconds,
        "gflop_per_s": flops / seconds / 1e9,
    }
