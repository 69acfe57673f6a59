"""Checks correctness and measures speed on one GPU.

    python -m tools.gpu_check --out DIR [--only a,b] [--seconds N] [--tiny]

--only names the parts to run; docs/results/gpu.md describes them and defines MFU and
decode bound. Each part runs in its own process group with a time limit; --seconds
limits the total time. Each result is appended to DIR/results.jsonl at once; other
output is written to DIR/log.txt. At the end the command prints the results. --tiny uses
a CPU and small models.
"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

# For each part: the module whose function, named as the part, yields the results; the
# time limit in seconds; and XLA flags. The most important parts come first.
PARTS = {
    "machine": ("kernels", 45, ""),
    "kernels": ("kernels", 100, ""),
    "update_small": ("speed", 160, ""),
    "decode_small": ("speed", 120, ""),
    "equal": ("kernels", 120, ""),
    "quickstart": ("runs", 180, ""),
    "update_large": ("speed", 110, ""),
    "decode_large": ("speed", 70, ""),
    "logits": ("peer", 120, ""),
    "peer": ("peer", 90, ""),
    "deterministic": ("kernels", 90, "--xla_gpu_deterministic_ops=true"),
    "resume": ("runs", 300, ""),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check")
    parser.add_argument(
        "--out", type=pathlib.Path, required=True, metavar="DIR", help="output folder"
    )
    parser.add_argument(
        "--only", default=",".join(PARTS), help="parts, separated by commas"
    )
    parser.add_argument("--seconds", type=float, default=470, help="time for all parts")
    parser.add_argument("--tiny", action="store_true", help="a small model on a CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    results = args.out / "results.jsonl"
    if args.part:
        module = importlib.import_module(f"tools.gpu_check.{PARTS[args.part][0]}")
        for row in getattr(module, args.part)(args.tiny):
            with results.open("a") as file:
                file.write(json.dumps({"part": args.part, **row}, default=float) + "\n")
        return 0
    chosen = args.only.split(",")
    if unknown := {*chosen} - {*PARTS}:
        fault = f"{min(unknown)!r} is not a part; choose from {', '.join(PARTS)}"
        parser.error(f"--only={args.only}: {fault}")
    args.out.mkdir(parents=True, exist_ok=True)
    results.touch()
    before = len(results.read_text().splitlines())
    end, lines, statuses = time.monotonic() + args.seconds, [], []
    for name in chosen:
        began = time.monotonic()
        # A shared CPU needs more time.
        seconds = min(PARTS[name][1] * (20 if args.tiny else 1), end - began)
        status = _run_part(name, args.tiny, max(0, seconds), args.out)
        statuses.append(status)
        lines.append(f"{name:14} status {status}, {time.monotonic() - began:.0f} s")
    rows = map(json.loads, results.read_text().splitlines()[before:])
    print("\n".join([*map(_line, rows), *lines]))
    return int(any(statuses))


def _run_part(name: str, tiny: bool, seconds: float, out: pathlib.Path) -> int:
    module, _, flags = PARTS[name]
    environment = {
        "JAX_COMPILATION_CACHE_DIR": "/tmp/gpu_check_programs",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",
        **os.environ,
    }
    if module == "peer":  # torch needs memory too
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if environment.get("JAX_PLATFORMS"):
        environment["JAX_PLATFORMS"] += ",cpu"  # "equal" computes on the CPU too
    if tiny:
        environment["JAX_PLATFORMS"] = "cpu"
    elif flags:
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}"
    command = [sys.executable, "-m", "tools.gpu_check", f"--part={name}"]
    with (out / "log.txt").open("a") as log:
        log.write(f"=== {name}\n")
        log.flush()
        process = subprocess.Popen(
            [*command, f"--out={out}", *["--tiny"] * tiny],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            log.write(f"killed after {seconds:.0f} s\n")
        with contextlib.suppress(ProcessLookupError):  # with all its child processes
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _line(row: dict[str, Any]) -> str:
    values = [
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in row.items()
        if key not in ("part", "what") and not isinstance(value, list)
    ]
    return f"{row['part']:14} {row['what']:18} {' '.join(values)}"


if __name__ == "__main__":
    sys.exit(main())
