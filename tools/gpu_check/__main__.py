"""Checks correctness and measures speed on one GPU.

    python -m tools.gpu_check --out DIR [--only a,b] [--seconds N] [--tiny]

--only names the parts to run; docs/results/gpu.md describes them and defines MFU and
decode bound. Each part runs in its own process group with a time limit; --seconds
limits the total time. Each result is printed and appended to DIR/results.jsonl at once;
other output is written to DIR/log.txt. --tiny uses a CPU and small models.
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

from rl.processes.devices import keep_programs, take_gpu_memory

# For each part: the module whose function, named as the part, yields the results; and
# the time limit in seconds. The most important parts come first.
PARTS = {
    "machine": ("kernels", 45),
    "kernels": ("kernels", 100),
    "update_small": ("speed", 160),
    "decode_small": ("speed", 120),
    "equal": ("kernels", 120),
    "quickstart": ("runs", 180),
    "update_large": ("speed", 110),
    "decode_large": ("speed", 70),
    "logits": ("peer", 120),
    "peer": ("peer", 90),
    "deterministic": ("kernels", 90),
    "resume": ("runs", 300),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check")
    add = parser.add_argument
    add("--out", type=pathlib.Path, required=True, metavar="DIR", help="output folder")
    add("--only", default=",".join(PARTS), help="parts, separated by commas")
    add("--seconds", type=float, default=470, help="time for all parts")
    add("--tiny", action="store_true", help="a small model on a CPU")
    add("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.part:
        _measure(args.part, args.tiny, args.out / "results.jsonl")
        return 0
    chosen = args.only.split(",")
    if unknown := {*chosen} - {*PARTS}:
        fault = f"{min(unknown)!r} is not a part; choose from {', '.join(PARTS)}"
        parser.error(f"--only={args.only}: {fault}")
    args.out.mkdir(parents=True, exist_ok=True)
    end, statuses = time.monotonic() + args.seconds, []
    for name in chosen:
        began = time.monotonic()
        # A shared CPU needs more time.
        seconds = min(PARTS[name][1] * (20 if args.tiny else 1), end - began)
        statuses.append(_start(name, args.tiny, max(0, seconds), args.out))
        outcome = f"status {statuses[-1]}, {time.monotonic() - began:.0f} s"
        print(f"{name:14} {outcome}", flush=True)
    return int(any(statuses))


def _measure(part: str, tiny: bool, results: pathlib.Path) -> None:
    take_gpu_memory()
    keep_programs("/tmp/gpu_check_programs")
    module = importlib.import_module(f"tools.gpu_check.{PARTS[part][0]}")
    for row in getattr(module, part)(tiny):
        with results.open("a") as file:
            file.write(json.dumps({"part": part, **row}, default=float) + "\n")
        values = (
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in row.items()
            if not isinstance(value, list)
        )
        print(f"{part:14}", *values, flush=True)


def _start(part: str, tiny: bool, seconds: float, out: pathlib.Path) -> int:
    """Runs a part in its own process; returns the exit status."""
    command = [sys.executable, "-m", "tools.gpu_check", f"--part={part}"]
    environment = dict(os.environ)
    if tiny:
        environment["JAX_PLATFORMS"] = "cpu"
    elif platforms := environment.get("JAX_PLATFORMS"):
        environment["JAX_PLATFORMS"] = f"{platforms},cpu"  # "equal" computes on both
    with (out / "log.txt").open("a") as log:
        print(f"=== {part}", file=log, flush=True)
        process = subprocess.Popen(
            [*command, f"--out={out}", *["--tiny"] * tiny],
            env=environment,
            stderr=log,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            log.write(f"killed after {seconds:.0f} s\n")
        with contextlib.suppress(ProcessLookupError):  # with all its child processes
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
