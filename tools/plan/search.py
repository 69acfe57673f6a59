"""The fastest mesh, micro-batch and remat that fit: by estimate, then by compiling."""

import itertools
import pathlib
import sys
from collections.abc import Iterator

from ml_collections import ConfigDict

from rl.progress import watch
from sharding.mesh import SIZES
from tools.plan.environments import compile_programs
from tools.plan.estimate import Estimate, estimate
from tools.plan.phases import phases
from tools.plan.report import gib
from tools.plan.targets import Target
from tools.plan.workload import Workload, make_workload

_ROWS = (1, 2, 4, 8, 16)  # of each device
_REMATS = ("full", "dots", "none")
_TRIED = 6
# How far an estimate may be off; what is beyond is not compiled.
_SLACK = 1.1


def best(config: ConfigDict, target: Target, *, cache: pathlib.Path) -> ConfigDict:
    """The config on the mesh and with the micro-batch that do most in a second.

    Raises:
      ValueError: nothing fits; says what comes nearest.
    """
    found = sorted(
        ((estimate(work), work) for work in _candidates(config, target)),
        key=lambda pair: pair[0].seconds,
    )
    if not found:
        # Says what is wrong with the config itself.
        make_workload(config, target)
        raise ValueError(f"config.mesh: no mesh of {target} divides the model")
    near = [pair for pair in found if pair[0].peak <= _SLACK * target.usable]
    if not near:
        raise ValueError(_nowhere(min(found, key=lambda pair: pair[0].peak), target))
    smallest = min(near, key=lambda pair: pair[0].peak)
    tried = near[:_TRIED]
    if smallest not in tried:
        tried.append(smallest)
    refused = ""
    with watch("search", total=len(tried), unit="candidates") as count:
        for guess, work in tried:
            try:
                resident, compiled = compile_programs(
                    work.config,
                    target,
                    programs=("score", "accumulate", "apply"),
                    cache=cache,
                )
            except ValueError as error:  # such as: no room for the sampler
                fits, refused = False, f"; {error}"
            else:
                refused = ""
                fits = all(p.fits for p in phases(work, resident, compiled))
            count.update()
            print(
                f"{_named(work)}: about {gib(guess.peak)} GiB,"
                f" {'fits' if fits else f'does not fit{refused}'}",
                file=sys.stderr,
            )
            if fits:
                return work.config
    raise ValueError(_nowhere(smallest, target) + refused)


def _candidates(config: ConfigDict, target: Target) -> Iterator[Workload]:
    try:
        count = make_workload(config, target).trainer.count
    except ValueError:
        count = target.count
    tensors = [n for n in (1, 2, 4, 8) if count % n == 0]
    length = max(config.batch.row_lengths)
    for tensor, rows, remat, offload in itertools.product(
        tensors, _ROWS, _REMATS, (False, True)
    ):
        candidate = ConfigDict(config.to_dict())
        sizes = dict(zip(SIZES, (1, count // tensor, tensor), strict=True))
        candidate.mesh.update(sizes | {"offload_optimizer": offload})
        candidate.batch.micro_tokens = rows * length * (count // tensor)
        candidate.model.remat = remat
        try:
            yield make_workload(candidate.lock(), target)
        except ValueError:
            continue


def _named(work: Workload) -> str:
    c = work.config
    return (
        f"fsdp {work.mesh_shape[1]} x tensor {work.mesh_shape[2]}, {work.rows} rows,"
        f" remat {c.model.remat}"
        + (", moments on the host" if c.mesh.offload_optimizer else "")
    )


def _nowhere(nearest: tuple[Estimate, Workload], target: Target) -> str:
    guess, work = nearest
    return (
        f"--target={target}: {work.config.model.path or work.config.model.maker} fits"
        f" in no layout; the smallest, {_named(work)}, needs about {gib(guess.peak)} of"
        f" {gib(target.usable)} GiB"
    )
