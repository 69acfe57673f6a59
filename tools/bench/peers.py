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
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from configs.reading import user_path
from tools.bench.work import Shape, report

PEERS = {"tunix": ".venv-tunix", "trl": ".venv-trl", "vllm": ".venv-vllm"}
_SCRIPTS = pathlib.Path(__file__).parent


def add_shape_arguments(parser: argparse.ArgumentParser, **defaults: int) -> None:
    for field in dataclasses.fields(Shape):
        default = defaults.get(field.name, field.default)
        if field.name == "lengths":
            parser.add_argument(
                "--lengths", choices=("equal", "lognormal"), default="equal"
            )
        else:
            parser.add_argument(f"--{field.name}", type=int, default=default)


def add_peer_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
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


def installed(arguments: argparse.Namespace) -> Iterator[tuple[str, pathlib.Path]]:
    """Peers that have an environment, unless they are not asked for."""
    for name in PEERS:
        python = getattr(arguments, name, None)
        if python and python.is_file() and not arguments.only_ours:
            yield name, python


def measure(
    name: str,
    python: pathlib.Path,
    what: Sequence[str],
    shape: Shape,
    tokens: dict[str, np.ndarray],
    repeat: int,
) -> dict:
    """Runs `peer_NAME.py`, which writes a timing by measurement.

    Returns:
      Its version and a report by measurement; or `failed`, the end of what it printed:
      one peer's failure costs no other figure.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work.npz"
        out = pathlib.Path(folder) / "out.json"
        np.savez(work, shape=json.dumps(dataclasses.asdict(shape)), **tokens)
        command = [python, _SCRIPTS / f"peer_{name}.py", work, out, str(repeat), *what]
        environment = {k: v for k, v in os.environ.items() if k != "NPROC"}
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            tail = " ".join((done.stderr or done.stdout).split())[-400:]
            print(f"bench: {name} failed: {tail}", file=sys.stderr, flush=True)
            return {"failed": tail}
        found = json.loads(out.read_text())
    useful = int(tokens["lengths"].sum()) + shape.rows * shape.prompt
    flops = shape.forward_flops(tokens["lengths"])
    of = {"update": (useful, 3 * flops), "logprobs": (useful, flops)}
    return {
        "version": found["version"],
        **{
            key: report(timing, *of.get(key, ()))
            for key, timing in found["timings"].items()
        },
    }


def with_ratios(result: dict) -> dict:
    """Adds each figure of ours over the peers', and shares of the matmul peak."""
    ours = result["ours"]
    result["ratios"] = {
        f"{key} / {name}": ours[key]["tokens_per_s"] / result[name][key]["tokens_per_s"]
        for name in PEERS
        if name in result
        for key in ours
        if isinstance(ours[key], dict) and key in result[name]
    }
    for name in ("ours", *PEERS):
        for row in result.get(name, {}).values():
            if isinstance(row, dict) and "gflop_per_s" in row:
                row["of_peak"] = row["gflop_per_s"] / result["peak_gflop_per_s"]
    return result


def machine() -> dict:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
