"""Measures the update, and those of Tunix and TRL on the same work.

An update is loss, gradient, clipping by norm and AdamW, in fp32, with old
log-probabilities given; log-probabilities are also measured alone. Padding does not
count as tokens. Peers (`pip install google-tunix==0.1.7`, `pip install trl==1.16.0`)
that are not installed are left out. Medians count.
"""

import argparse
import dataclasses
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from configs import base
from models.attention import IMPLEMENTATIONS
from models.config import DecoderConfig
from models.decoder import REMAT_POLICIES, Decoder, init_params
from rl.base_model import model_from_config
from rl.groups.packing import pack, padding_fraction
from rl.groups.weights import weigh
from rl.processes.devices import start_cpu_devices
from rl.setup import make_update
from rl.types import Segment, make_hyper
from rl.update.objective import objective_from_config
from rl.update.step import Step
from sharding.mesh import make_mesh
from sharding.rules import laid_out, place, shards
from tools.bench import peers
from tools.bench.work import Shape, make_tokens, measure, report

SCALARS = make_hyper(
    learning_rate=1e-6, eps_low=0.2, eps_high=0.28, temperature=1.0, first_update=False
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    peers.add_arguments(parser, "tunix", "trl", repeat=7)
    parser.add_argument("--row_length", type=int, default=0, help="0: the longest")
    parser.add_argument("--micro_tokens", type=int, default=2048)
    parser.add_argument("--head_chunk", type=int, default=256)
    parser.add_argument("--remat", choices=sorted(REMAT_POLICIES), default="none")
    parser.add_argument("--attention", choices=sorted(IMPLEMENTATIONS), default="xla")
    parser.add_argument(
        "--no_sharing",
        action="store_true",
        help="give every completion a prompt of its own, as the peers do",
    )


def run(arguments: argparse.Namespace) -> dict:
    """Measures; see the module's docstring."""
    shape = peers.shape_of(arguments)
    tokens = make_tokens(shape)
    start_cpu_devices(arguments.devices, rows=64)
    result = {
        "shape": dataclasses.asdict(shape),
        "machine": peers.machine(),
        "peak_gflop_per_s": matmul_peak() / 1e9,
        **_measure_ours(arguments, shape, tokens),
    }
    return peers.compare(result, arguments, (shape, ("update", "logprobs")))


def matmul_peak(size: int = 2048, repeat: int = 9) -> float:
    """FLOP/s of one square fp32 matrix product over all devices, rows split."""
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    rows, whole = laid_out(mesh, "batch"), laid_out(mesh)
    a, b = (jnp.ones((size, size), jnp.float32) for _ in range(2))
    a, b = jax.device_put(a, rows), jax.device_put(b, whole)
    product = jax.jit(jnp.matmul, out_shardings=rows)

    def multiply():
        product(a, b).block_until_ready()

    seconds = measure(multiply, repeat=repeat)["seconds"]
    return 2 * size**3 / statistics.median(seconds)


def make_segments(shape: Shape, tokens: dict[str, np.ndarray]) -> list[Segment]:
    """The work as the trainer's own segments."""
    return [
        Segment(
            group=i // shape.group_size,
            token_ids=np.concatenate(
                [tokens["prompts"][i], tokens["completions"][i, :length]]
            ),
            prompt_length=shape.prompt,
            sampler_logprobs=np.full(length, -6.9, np.float32),
            off_policy=np.zeros(length, bool),
            stale=np.zeros(length, bool),
            advantage=float(tokens["advantages"][i]),
        )
        for i, length in enumerate(tokens["lengths"])
    ]


def make_trainer(
    shape: Shape, mesh: Mesh, *, deterministic: bool = False, **options: Any
) -> tuple[Decoder, Step]:
    """Make the model and the update of a run; `options` are of `config.model`."""
    config = base.get_config()
    config.deterministic = deterministic
    config.model.update(options)
    c = base.from_config(config)
    model = model_from_config(c, DecoderConfig.from_hf(shape.hf_config()), mesh)
    return model, make_update(c, model, objective_from_config(c))


def _measure_ours(arguments, shape: Shape, tokens) -> dict:
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    names = ("remat", "attention", "head_chunk")
    options = {name: getattr(arguments, name) for name in names}
    model, step = make_trainer(shape, mesh, dtype="float32", **options)
    packed = pack(
        make_segments(shape, tokens),
        row_lengths=(arguments.row_length or shape.prompt + shape.completion,),
        micro_tokens=arguments.micro_tokens,
        row_multiple=shards("batch", mesh),
        share_prompts=not arguments.no_sharing,
    )
    batches = weigh(packed, aggregation="token", constant=shape.completion)
    placed = [place(batch, step.rows) for batch in batches]
    state = step.init(init_params(model, mesh, 0))

    def update():
        nonlocal state
        state, stats = step.update(state, placed, SCALARS)
        jax.block_until_ready(stats)

    def logprobs():
        scored = [step.score(state.params, batch, SCALARS) for batch in placed]
        jax.block_until_ready(scored)

    runs = {"logprobs": logprobs, "update": update}
    timings = {k: measure(run, repeat=arguments.repeat) for k, run in runs.items()}
    return {
        "rows": [batch.token_ids.shape for batch in batches],
        "padding": padding_fraction(batches),
        "positions": int(sum((b.segment_ids > 0).sum() for b in batches)),
        "ours": report(timings, shape, tokens["lengths"]),
    }
