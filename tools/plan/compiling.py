"""Compiles a run's programs: `python -m tools.plan.compiling`, started by plan itself.

Runs in an environment that holds the accelerator's compiler (`make plan`) and needs no
accelerator. Reads one request as JSON from stdin and writes lines of JSON to stdout:
what stays on the devices, then each program, or what was wrong. A program that was
compiled before comes out of the cache.
"""

import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
from ml_collections import ConfigDict

from rl.files import publish
from rl.processes.stopping import one_line
from tools.plan.programs import programs
from tools.plan.targets import Target, parse_target
from tools.plan.workload import make_workload

_COMPILERS = {
    "tpu": ("jax", "jaxlib", "libtpu"),
    "cuda": ("jax", "jaxlib", *(f"jax-cuda{v}-plugin" for v in (12, 13))),
}
_SIZES = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compiler says of one program, of each device.

    Attributes:
      name: of `programs.PARTS`.
      arguments, outputs, aliased, temporary: bytes; the aliased ones are both argument
        and output.
      exceeds: bytes that it would need, where the compiler refused it for that; the
        others are then 0, and there is no text.
      seconds: that compiling took when it was done.
      text: the compiled program.
    """

    name: str
    arguments: int = 0
    outputs: int = 0
    aliased: int = 0
    temporary: int = 0
    exceeds: int = 0
    seconds: float = 0.0
    text: str = ""


def _compiled(
    name: str, lowered: jax.stages.Lowered, target: Target, cache: pathlib.Path
) -> Compiled:
    """What the target's compiler says of a program, or has said before.

    Raises:
      ValueError: it refuses the program, and not for its size.
    """
    path = cache / f"{_key(lowered.as_text(), target)}.json.gz"
    if not path.is_file():
        try:
            with _alone(target, cache):
                row = _compile(lowered)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(f"{name}: {one_line(error)[:300]}") from None
        part = path.with_suffix(f".{os.getpid()}.part")
        with gzip.open(part, "wt", encoding="utf-8") as file:
            json.dump(row, file)
        publish(part, path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return Compiled(name=name, **json.load(file))


def _compile(lowered: jax.stages.Lowered) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        executable = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        exceeds = _needed(str(error))
        if not exceeds:
            raise
        return {"exceeds": exceeds, "seconds": time.perf_counter() - began}
    memory = executable.memory_analysis()
    return {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "seconds": time.perf_counter() - began,
        "text": executable.as_text(),
    }


def _key(text: str, target: Target) -> str:
    compiler = [
        f"{found.name} {found.version}"
        for name in _COMPILERS[target.chip.platform]
        for found in importlib.metadata.distributions(name=name)
    ]
    said = [text, str(target), target.chip.device, *compiler]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _alone(target: Target, cache: pathlib.Path) -> Iterator[None]:
    """libtpu lets one process at a time use it, and ends any other."""
    if target.chip.platform != "tpu":
        yield
        return
    with (cache / "tpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _needed(error: str) -> int:
    """Bytes that a compiler says it misses, 0 where it says something else."""
    found = re.search(r"Used ([\d.]+)([BKMGT]) of [\d.]+[BKMGT] hbm", error) or (
        re.search(r"total memory required .*?\(([\d.]+)([BKMGT])\)", error)
    )
    return int(float(found[1]) * _SIZES[found[2]]) if found else 0


def main() -> int:
    request = json.load(sys.stdin)
    # Libraries print to stdout as they like; the answers have it for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        config = ConfigDict(request["config"]).lock()
        work = make_workload(config, parse_target(request["target"]))
        cache = pathlib.Path(request["cache"])
        resident, found = programs(work)
        say(dataclasses.asdict(resident))
        for name, program in found.items():
            if name in request["programs"]:
                compiled = _compiled(name, program.lower(), work.trainer, cache)
                say(dataclasses.asdict(compiled))
    except (ValueError, OSError) as error:
        say({"error": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
