"""Compiles a run's programs: `python -m tools.plan.compiling`, started by plan itself.

Runs in an environment that holds the accelerator's compiler (`make plan`) and needs no
accelerator. Reads one request as JSON from stdin and writes lines of JSON to stdout:
what stays on the devices, then each program, or what was wrong. A program that was
compiled before comes out of the cache.
"""

import contextlib
import dataclasses
import fcntl
import functools
import gzip
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import jax
from ml_collections import ConfigDict

from rl.files import replace
from tools.plan.programs import Program, Resident, programs
from tools.plan.targets import Target, parse_target
from tools.plan.workload import make_workload

_COMPILERS = {
    "tpu": ("jax", "jaxlib", "libtpu"),
    "cuda": ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt"),
}
_SIZES = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compiler says of one program, of each device.

    Attributes:
      name, part: of a `Program`.
      key: of the cache; `KEY.txt.gz` there is the compiled text.
      arguments, outputs, aliased, temporary: bytes; the aliased ones are both argument
        and output.
      peak: bytes in use at most, arguments and outputs with them.
      exceeds: bytes that it would need, where the compiler refused it for that; the
        others are then 0.
      seconds: that compiling took when it was done.
    """

    name: str
    part: str
    key: str
    arguments: int = 0
    outputs: int = 0
    aliased: int = 0
    temporary: int = 0
    peak: int = 0
    exceeds: int = 0
    seconds: float = 0.0

    def text(self, cache: pathlib.Path) -> str:
        if self.exceeds:
            return ""
        return gzip.decompress(_text_file(cache, self.key).read_bytes()).decode()


def _text_file(cache: pathlib.Path, key: str) -> pathlib.Path:
    return cache / f"{key}.txt.gz"


def compile_all(
    config: Mapping, target: Target, names: Sequence[str], cache: pathlib.Path
) -> Iterator[Resident | Compiled]:
    """Compiles the named programs of a run, or takes them from the cache.

    Args:
      config: of the run, as plain values.
      target: of the whole run.
      names: some of `programs.NAMES`.
      cache: a folder.

    Yields:
      What stays on the devices; then each program.
    """
    work = make_workload(ConfigDict(config).lock(), target)
    resident, found = programs(work)
    yield resident
    for program in found:
        if program.name in names:
            yield _compiled(program, work.trainer, cache)


def _compiled(program: Program, target: Target, cache: pathlib.Path) -> Compiled:
    lowered = program.lower()
    key = _key(lowered.as_text(), target)
    described = cache / f"{key}.json"
    if described.is_file():
        row = json.loads(described.read_text(encoding="utf-8"))
        return Compiled(name=program.name, part=program.part, key=key, **row)
    began = time.perf_counter()
    try:
        with _alone(target, cache):
            executable = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        needed = _needed(str(error))
        if not needed:
            raise ValueError(f"{program.name}: {_line(error)}") from None
        row = {"exceeds": needed}
    else:
        memory = executable.memory_analysis()
        text = gzip.compress(executable.as_text().encode(), mtime=0)
        part = cache / f"{key}.{os.getpid()}.part"
        part.write_bytes(text)
        part.replace(_text_file(cache, key))
        row = {
            "arguments": memory.argument_size_in_bytes,
            "outputs": memory.output_size_in_bytes,
            "aliased": memory.alias_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "peak": memory.peak_memory_in_bytes,
        }
    row["seconds"] = time.perf_counter() - began
    replace(described, json.dumps(row))
    return Compiled(name=program.name, part=program.part, key=key, **row)


def _key(text: str, target: Target) -> str:
    compiler = [
        f"{name} {importlib.metadata.version(name)}"
        for name in _COMPILERS[target.chip.platform]
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


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def main() -> int:
    request = json.load(sys.stdin)
    # Libraries print to stdout as they like; the answers have it for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cache = pathlib.Path(request["cache"])
    cache.mkdir(parents=True, exist_ok=True)
    say = functools.partial(print, file=answers, flush=True)
    try:
        for answer in compile_all(
            request["config"],
            parse_target(request["target"]),
            request["programs"],
            cache,
        ):
            say(json.dumps(dataclasses.asdict(answer)))
    except (ValueError, OSError) as error:
        say(json.dumps({"error": str(error)}))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
