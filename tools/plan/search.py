"""Searches for the fastest layout of a run that fits into memory.

A layout is a choice of mesh, micro-batch, remat policy and optimizer offloading. The
search estimates memory and time of many layouts, then compiles the fastest ones in turn
until one fits.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp

from configs.base import RunConfig
from models.decoder import LAYERS, Remat
from rl.checkpoint import state_bytes
from rl.progress import each
from rl.update.head import BLOCK, GPU_BLOCK
from rl.update.optimizer import make_optimizer
from rl.update.step import summed_in
from tools.plan.architectures import architecture
from tools.plan.compiling import compile_programs, use_compiler
from tools.plan.report import fits, gib, memory
from tools.plan.targets import Target
from tools.plan.workload import Workload, make_workload, shard_shapes

_ROWS = (1, 2, 4, 8, 16)  # rows of a micro-batch on each device
_TRIED = 6  # number of candidates that are compiled
_UPDATE = ("score", "accumulate", "apply")
_SLACK = 1.1  # candidates are not compiled if estimated above 1.1 x usable memory
# Factors of the temporary buffers of a micro-batch, fitted to compiled programs: the
# gradient; the shards of all layers in the compute dtype; the input of each layer; the
# gathered weights of one layer; the activations within a layer; the activations that
# remat saves; a chunk of the head.
_FITTED = {
    "tpu": (1.63, 1.27, 1.27, 2.15, 1.69, 1.0, 1.08),
    "cuda": (0.87, 0.55, 1.33, 1.57, 0.76, 0.98, 0.71),
}


class Estimate(NamedTuple):
    peak: float  # peak memory of each device in bytes, over the programs of an update
    seconds: float  # lower bound of the time of a micro-batch, divided by its tokens


def estimate(work: Workload) -> Estimate:
    config, c, t = work.config, work.model, work.config.model
    _, fsdp, tensor = work.mesh_shape
    params = jax.tree.map(
        lambda x: x.update(dtype=t.param_dtype), shard_shapes(c, work.mesh_shape)
    )
    weights, layers = (
        sum(x.size for x in jax.tree.leaves(part)) for part in (params, params[LAYERS])
    )
    wide, narrow = jnp.dtype(t.param_dtype).itemsize, jnp.dtype(t.dtype).itemsize
    masters = weights * wide
    moments = state_bytes(params, make_optimizer(config.optimizer)) - masters
    tokens, d = work.local_tokens, c.hidden_size
    heads = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim / tensor
    mlp = c.intermediate_size / tensor
    kept = {"full": 0.0, "dots": heads + d + 2 * mlp}
    kept["none"] = 2 * heads + 6 * d + 4 * mlp
    count, chip = work.target.count, work.target.chip
    block = BLOCK if chip.platform == "tpu" else GPU_BLOCK
    parts = (
        masters,
        layers * narrow,
        c.num_layers * tokens * d * narrow,
        layers * fsdp / c.num_layers * narrow,
        tokens * (heads + 2 * d + 3 * mlp) * narrow,
        c.num_layers * tokens * kept[t.remat] * narrow,
        min(t.head_chunk, tokens) * block * 4 + (block + tokens) * d * 8,
    )
    temporary = sum(a * b for a, b in zip(_FITTED[chip.platform], parts, strict=True))
    if not config.mesh.offload_optimizer:
        temporary += moments
    # Weights are gathered in the forward pass, in the backward pass and for remat;
    # gradients are reduced.
    passes = 3 if t.remat == "none" else 4
    summed = 4 * (tensor - 1) / tensor * tokens * d
    links = passes * 2 * (layers * (fsdp - 1) + c.num_layers * summed)
    # Assumes that each text fills a quarter of a row.
    each = work.rows * work.row_length / count
    compute = work.flops("accumulate", each, work.row_length / 4) / chip.flops
    seconds = max(compute, links / work.target.link_rate(count)) / each / count
    gradients = weights * summed_in(t.param_dtype).itemsize
    return Estimate(masters + gradients + max(temporary, moments), seconds)


def best(config: RunConfig, target: Target) -> Workload:
    """Returns the workload of the first compiled layout that fits.

    Compiles up to `_TRIED` layouts in the order of their estimated times, then the one
    with the lowest estimated memory. Does not compile layouts whose estimated memory
    exceeds `_SLACK` times the usable memory.

    Raises:
      ValueError: no layout is valid or fits, the compiler is not installed, the run
        trains adapters, or the config is not valid.
    """
    if rank := config.model.lora.rank:
        raise ValueError(
            f"config.model.lora.rank={rank}: --search cannot estimate the memory of"
            " adapters; set config.mesh, config.batch.micro_tokens and"
            " config.model.remat yourself"
        )
    architecture(config)  # reports an unreadable model once
    found, errors = [], []
    for candidate in _candidates(config, target.count):
        try:
            work = make_workload(candidate, target)
        except ValueError as error:  # such as a mesh that does not divide the model
            errors.append(error)
        else:
            found.append((estimate(work), work))
    if not found:
        raise ValueError(
            f"--search --target={target}: no layout is valid; give other devices or"
            f" change the config ({errors[0]})"
        )
    found.sort(key=lambda pair: pair[0].seconds)
    near = [pair for pair in found if pair[0].peak <= _SLACK * target.usable]
    smallest = min(near or found, key=lambda pair: pair[0].peak)
    tried = near[:_TRIED] + [pair for pair in near[_TRIED:] if pair is smallest]
    if tried:
        use_compiler(target)
    for guess, work in each(tried, "search", "candidates"):
        refused = _refused(work)
        size, outcome = gib(guess.peak), refused or "fits"
        print(f"{_name(work)}: about {size} GiB, {outcome}", file=sys.stderr)
        if not refused:
            return work
    guess, work = smallest
    model = work.config.model.path or work.config.model.maker
    raise ValueError(
        f"--target={target}: {model} does not fit: {len(found)} layouts were estimated"
        f" and {len(tried)} compiled; the smallest, {_name(work)}, is estimated at"
        f" {gib(guess.peak)} of {gib(target.usable)} usable GiB; give more or larger"
        " devices"
    )


def _refused(work: Workload) -> str:
    """Compiles an update; returns why it does not fit, or "" if it fits."""
    try:
        resident, compiled = compile_programs(work, only=_UPDATE)
    except ValueError as error:  # such as no room for the sampler
        return f"is rejected; {error}"
    fit = all(fits(work, memory(resident.sizes, p), p) for p in compiled)
    return "" if fit else "does not fit"


def _candidates(config: RunConfig, count: int) -> Iterator[RunConfig]:
    """Yields a config for each layout on `count` devices; some may not be valid."""
    length, change = max(config.batch.row_lengths), dataclasses.replace
    for tensor, rows, remat, offload in itertools.product(
        (1, 2, 4, 8), _ROWS, get_args(Remat), (False, True)
    ):
        if count % tensor:
            continue
        fsdp = count // tensor
        sizes = {"data": 1, "fsdp": fsdp, "tensor": tensor}
        yield change(
            config,
            mesh=change(config.mesh, **sizes, offload_optimizer=offload),
            batch=change(config.batch, micro_tokens=rows * length * fsdp),
            model=change(config.model, remat=remat),
        )


def _name(work: Workload) -> str:
    return (
        f"fsdp {work.mesh_shape[1]} x tensor {work.mesh_shape[2]}, {work.rows} rows,"
        f" remat {work.config.model.remat}"
        + (", moments on the host" if work.config.mesh.offload_optimizer else "")
    )
