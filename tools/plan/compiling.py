"""Compiles a run's programs for an accelerator that this machine does not have.

The compilers are JAX plugins. Installed plugins change JAX's default device, so
`make plan` installs each compiler in its own environment.
"""

import dataclasses
import gzip
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import Collection
from typing import Any

import jax

from rl.errors import one_line
from rl.files import publish
from rl.progress import each
from tools.plan.programs import PHASES, Resident, programs
from tools.plan.targets import Target
from tools.plan.workload import Workload

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path("~/.cache/compass/plan").expanduser()
# Packages of the compilers. One of the two CUDA plugins is installed.
_COMPILERS = {"tpu": ("libtpu",), "cuda": ("jax-cuda13-plugin", "jax-cuda12-plugin")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """Holds a compiler's report on one program; sizes are bytes on each device."""

    name: str
    arguments: int = 0
    outputs: int = 0
    aliased: int = 0  # arguments whose memory is reused for outputs
    temporary: int = 0
    exceeds: int = 0  # memory needed by a program that is too large; otherwise 0
    seconds: float = 0.0  # compile time
    text: str = ""  # HLO; empty if the program is rejected


def use_compiler(target: Target) -> None:
    """Restarts `tools.plan`, unless it runs on the CPU with the target's compiler.

    Raises:
      ValueError: the compiler is not installed.
    """
    python, platform = sys.executable, target.chip.platform
    if _versions(*_COMPILERS[platform]):
        if os.environ.get("JAX_PLATFORMS") == "cpu":
            return
    else:
        # COMPASS_PLAN sets the path prefix of other environments.
        prefix = os.environ.get("COMPASS_PLAN") or ROOT / ".venv-plan"
        folder = pathlib.Path(f"{prefix}-{platform}").absolute()
        python = str(folder / "bin/python")
        if not (folder / ".done").exists() or python == sys.executable:
            raise ValueError(
                f"--target={target}: its compiler is not installed in {folder}; run"
                " `make plan`"
            )
    # Without TPU_SKIP_MDS_QUERY, libtpu queries Google Cloud's metadata server.
    os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    os.environ["PYTHONPATH"] = str(ROOT)
    os.execv(python, [python, "-m", "tools.plan", *sys.argv[1:]])


def compile_programs(
    work: Workload, *, only: Collection[str] = tuple(PHASES)
) -> tuple[Resident, list[Compiled]]:
    """Compiles the programs of a run that are named in `only`.

    Returns the sizes of the resident arrays, and a report on each program. Reports are
    cached, so that a program is not compiled twice.

    Raises:
      ValueError: `programs` raises it, or the compiler rejects a program for a reason
        other than its size.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    resident, found = programs(work)
    compiled = []
    for name in each([n for n in found if n in only], "compile", "programs"):
        row = _compile(name, found[name].lower(), work.target)
        compiled.append(Compiled(name=name, **row))
    return resident, compiled


def _compile(name: str, lowered: jax.stages.Lowered, target: Target) -> dict[str, Any]:
    """Returns the fields of `Compiled`, except the name."""
    versions = _versions("jax", "jaxlib", *_COMPILERS[target.chip.platform])
    key = "\0".join([lowered.as_text(), str(target), target.description, *versions])
    path = CACHE / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json.gz"
    if path.is_file():
        return json.loads(gzip.decompress(path.read_bytes()))
    began = time.perf_counter()
    try:
        executable = lowered.compile()
        memory: Any = executable.memory_analysis()
        row = {
            "arguments": memory.argument_size_in_bytes,
            "outputs": memory.output_size_in_bytes,
            "aliased": memory.alias_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "text": executable.as_text(),
        }
    except jax.errors.JaxRuntimeError as error:
        row = {"exceeds": _needed(str(error))}
        if not row["exceeds"]:
            raise ValueError(
                f"program {name!r} does not compile ({one_line(error)[:300]}); change"
                " the config or --target"
            ) from None
    row["seconds"] = time.perf_counter() - began
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(gzip.compress(json.dumps(row).encode()))
    publish(part, path)
    return row


def _versions(*names: str) -> list[str]:
    return [
        f"{name} {found.version}"
        for name in names
        for found in importlib.metadata.distributions(name=name)
    ]


def _needed(error: str) -> int:
    """Returns the bytes that an out-of-memory error reports as needed; otherwise 0."""
    tpu = r"Used ([\d.]+)([BKMGT]) of [\d.]+[BKMGT] hbm"
    gpu = r"total memory required .*?\(([\d.]+)([BKMGT])\)"
    found = re.search(tpu, error) or re.search(gpu, error)
    return int(float(found[1]) * 2 ** (10 * "BKMGT".index(found[2]))) if found else 0
