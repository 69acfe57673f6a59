"""Measures the speed of the update and of computing log-probabilities.

An update computes loss, gradient, gradient clipping and AdamW in float32; the old
log-probabilities are given. Rates do not count padding.
"""

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from configs import base
from models.config import DecoderConfig
from models.decoder import Decoder, init_params
from rl.base_model import model_from_config
from rl.groups.packing import pack, padding_fraction, weigh
from rl.processes.devices import start_cpu_devices
from rl.setup import make_update
from rl.types import Batch, Segment, make_hyper
from rl.update.objective import objective_from_config
from rl.update.step import Step
from sharding.mesh import make_mesh
from sharding.rules import laid_out, place, shards
from tools.bench import work
from tools.bench.work import Shape, make_tokens, median_seconds

SCALARS = make_hyper(
    learning_rate=1e-6, eps_low=0.2, eps_high=0.28, temperature=1.0, first_update=False
)


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
    """Returns the measurements; see the module's docstring."""
    shape = work.shape_of(arguments)
    tokens = make_tokens(shape)
    start_cpu_devices(0, rows=64)
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    model, step = make_trainer(
        shape, mesh, dtype="float32", remat="none", attention="xla", head_chunk=256
    )
    batches = make_batches(
        shape,
        tokens,
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

    useful = shape.rows * shape.prompt + int(tokens["lengths"].sum())
    forward = shape.forward_flops(tokens["lengths"])
    figures = {}
    for call, flops in ((logprobs, forward), (update, 3 * forward)):
        seconds = median_seconds(call, repeat=arguments.repeat)
        figures[call.__name__] = {
            "median_s": seconds,
            "tokens_per_s": useful / seconds,
            "gflop_per_s": flops / seconds / 1e9,
        }
    return {
        "shape": dataclasses.asdict(shape),
        "machine": work.machine(),
        "peak_gflop_per_s": matmul_peak() / 1e9,
        "rows": [batch.token_ids.shape for batch in batches],
        "padding": padding_fraction(batches),
        work.THIS: figures,
    }


def matmul_peak(size: int = 2048, dtype: DTypeLike = jnp.float32) -> float:
    """Measures the FLOP/s of a square matrix product with rows split over devices."""
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    rows, whole = laid_out(mesh, "batch"), laid_out(mesh)
    a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    a, b = jax.device_put(a, rows), jax.device_put(b, whole)
    product = jax.jit(jnp.matmul, out_shardings=rows)
    return 2 * size**3 / median_seconds(lambda: product(a, b), inner=9)


def make_batches(
    shape: Shape,
    tokens: dict[str, np.ndarray],
    *,
    row_length: int,
    micro_tokens: int,
    row_multiple: int = 1,
    share_prompts: bool = False,
) -> list[Batch]:
    """Packs the completions of `make_tokens` into micro-batches.

    The number of rows of each micro-batch is a multiple of `row_multiple`.
    """
    segments = [
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
    packed = pack(
        segments,
        row_lengths=(row_length,),
        micro_tokens=micro_tokens,
        row_multiple=row_multiple,
        share_prompts=share_prompts,
    )
    return weigh(packed, aggregation="token", constant=shape.completion)


def one_device() -> Mesh:
    """Returns a mesh of the first device."""
    return make_mesh(devices=jax.devices()[:1])


def make_trainer(
    shape: Shape,
    mesh: Mesh | None = None,
    *,
    deterministic: bool = False,
    **options: Any,
) -> tuple[Decoder, Step]:
    """Builds the model and the update of a run, by default on the first device.

    `options` are values of keys of `config.model`.
    """
    config = base.get_config()
    config.deterministic = deterministic
    config.model.update(options)
    c = base.from_config(config)
    mesh = mesh or one_device()
    model = model_from_config(c, DecoderConfig.from_hf(shape.hf_config()), mesh)
    return model, make_update(c, model, objective_from_config(c))
