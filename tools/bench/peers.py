"""Runs other projects on the same work, each in its own environment."""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from configs.reading import user_path
from tools.bench.work import Shape, make_tokens, report

PEERS = {"tunix": ".venv-tunix", "trl": ".venv-trl"}
_SCRIPTS = pathlib.Path(__file__).parent


def add_arguments(
    parser: argparse.ArgumentParser, *names: str, **defaults: int
) -> None:
    """Flags for the work's shape, the calls and the devices, and for named peers."""
    sizes = dataclasses.asdict(Shape()) | {"repeat": 5} | defaults
    parser.add_argument(
        "--lengths", choices=("equal", "lognormal"), default=sizes.pop("lengths")
    )
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--devices", type=int, default=0, help="on a CPU; 0: cores")
    for name in names:
        folder = PEERS[name]
        parser.add_argument(
            f"--{name}",
            type=user_path,
            default=pathlib.Path(folder) / "bin/python",
            metavar="PYTHON",
            help=f"of an environment with {name} (default: {folder}/bin/python)",
        )
    parser.add_argument("--only_ours", action="store_true")


def shape_of(arguments: argparse.Namespace) -> Shape:
    fields = [field.name for field in dataclasses.fields(Shape)]
    return Shape(**{name: getattr(arguments, name) for name in fields})


def compare(
    result: dict[str, Any],
    arguments: argparse.Namespace,
    *works: tuple[Shape, Sequence[str]],
) -> dict[str, Any]:
    """Adds the peers that have an environment, and our figures over theirs.

    Args:
      result: our figures by measurement; shares of `peak_gflop_per_s` are added.
      arguments: of the command.
      works: each a shape, and what is measured of it.
    """
    ours = result["ours"]
    for name in PEERS:
        python = getattr(arguments, name, None)
        if python and python.is_file() and not arguments.only_ours:
            result[name] = {}
            for shape, what in works:
                result[name] |= _measure(name, python, what, shape, arguments.repeat)
    result["ratios"] = {
        f"{key} / {name}": row["tokens_per_s"] / result[name][key]["tokens_per_s"]
        for name in PEERS
        for key, row in ours.items()
        if key in result.get(name, {})
    }
    for name in ("ours", *PEERS):
        for row in result.get(name, {}).values():
            if "gflop_per_s" in row:
                row["of_peak"] = row["gflop_per_s"] / result["peak_gflop_per_s"]
    return result


def _measure(
    name: str, python: pathlib.Path, what: Sequence[str], shape: Shape, repeat: int
) -> dict[str, Any]:
    """Runs `peer_NAME.py`, which writes a timing by measurement.

    Returns:
      Its version and a report by measurement; or `failed`, the end of what it printed:
      one peer's failure costs no other figure.
    """
    tokens: dict[str, Any] = make_tokens(shape)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work.npz"
        out = pathlib.Path(folder) / "out.json"
        np.savez(work, shape=json.dumps(dataclasses.asdict(shape)), **tokens)
        script = _SCRIPTS / f"peer_{name}.py"
        command = [*map(str, (python, script, work, out, repeat)), *what]
        environment = {k: v for k, v in os.environ.items() if k != "NPROC"}
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            tail = " ".join((done.stderr or done.stdout).split())[-400:]
            print(f"bench: {name} failed: {tail}", file=sys.stderr, flush=True)
            return {"failed": tail}
        found = json.loads(out.read_text())
    reports = report(found["timings"], shape, tokens["lengths"])
    return {"version": found["version"], **reports}


def machine() -> dict:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
