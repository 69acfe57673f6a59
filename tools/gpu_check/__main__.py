"""Measures what is right and how fast it is on one GPU.

    python -m tools.gpu_check --out DIR [--only a,b] [--seconds N] [--tiny]

Each part runs in a process group of its own with a time limit, so that a part that
fails or hangs does not stop the next one. Results are lines of DIR/results.jsonl, each
written when it is measured; DIR/log.txt has the rest of the output. A table comes last.
--tiny runs every part on a CPU with a small model. Formulas: docs/results/gpu.md.
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
import threading
import time
from collections.abc import Sequence
from typing import Any, TextIO

_MARK = "@@ "  # begins a line of results in a part's output
# In order of value: the module with the part's function, its seconds, XLA's flags.
PARTS = {
    "machine": ("kernels", 45, ""),
    "kernels": ("kernels", 100, ""),
    "update_small": ("speed", 130, ""),
    "decode_small": ("speed", 80, ""),
    "equal": ("compare", 90, ""),
    "quickstart": ("runs", 110, ""),
    "update_large": ("speed", 90, ""),
    "decode_large": ("speed", 70, ""),
    "logits": ("peer", 60, ""),
    "peer": ("peer", 60, ""),
    "graphs": ("speed", 60, "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"),
    "deterministic": ("compare", 90, "--xla_gpu_deterministic_ops=true"),
    "resume": ("runs", 100, ""),
}


def say(**row: Any) -> None:
    """Report one result."""
    print(_MARK + json.dumps(row, default=float), flush=True)


def _run_part(name: str, tiny: bool, seconds: float, results: TextIO, log: TextIO):
    """Run a part in a process of its own; returns its exit status and results."""
    environment = dict(os.environ)
    if tiny:
        environment["JAX_PLATFORMS"] = "cpu"
    elif flags := PARTS[name][2]:
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}"
    if PARTS[name][0] == "peer":  # torch needs memory too
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.gpu_check", "--part", name, *["--tiny"] * tiny],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    rows: list[dict[str, Any]] = []
    other: list[str] = []

    def read() -> None:
        for line in process.stdout or ():
            if line.startswith(_MARK):
                rows.append({"part": name, **json.loads(line[len(_MARK) :])})
                results.write(json.dumps(rows[-1]) + "\n")
                results.flush()
            else:
                other.append(line.rstrip()[:400])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(seconds)
    if reader.is_alive():
        other.append(f"killed after {seconds:.0f} s")
    with contextlib.suppress(ProcessLookupError):  # and what the part has started
        os.killpg(process.pid, signal.SIGKILL)
    reader.join(5)
    log.write(f"=== {name}: {process.wait()}\n" + "\n".join(other[-60:]) + "\n")
    log.flush()
    return process.returncode, rows


def _line(row: dict[str, Any]) -> str:
    """One line of the table; lists are in results.jsonl alone."""
    values = [
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in row.items()
        if key not in ("part", "what") and not isinstance(value, list)
    ]
    return f"{row['part']:14} {row['what']:18} {' '.join(values)}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by commas")
    parser.add_argument("--seconds", type=float, default=470, help="time for all parts")
    parser.add_argument("--tiny", action="store_true", help="a small model on a CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.part:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "/tmp/gpu_check_programs")
        module = importlib.import_module(f"tools.gpu_check.{PARTS[args.part][0]}")
        getattr(module, args.part)(args.tiny)
        return 0
    chosen = args.only.split(",")
    if args.out is None or (unknown := {*chosen} - {*PARTS}):
        parser.error(f"--only: no {unknown}" if args.out else "give --out=DIR")
    args.out.mkdir(parents=True, exist_ok=True)
    end, found, lines = time.monotonic() + args.seconds, [], []
    with (
        (args.out / "results.jsonl").open("a") as results,
        (args.out / "log.txt").open("a") as log,
    ):
        for name in chosen:
            began = time.monotonic()
            if end - began < 15:
                lines.append(f"{name:14} not run: no time left")
                continue
            # A CPU that others use too takes longer.
            seconds = min(PARTS[name][1] * (20 if args.tiny else 1), end - began)
            status, rows = _run_part(name, args.tiny, seconds, results, log)
            found += [(status, row) for row in rows] or [(status, {})]
            seconds = time.monotonic() - began
            lines.append(
                f"{name:14} status {status}, {seconds:.0f} s, {len(rows)} rows"
            )
    print("\n".join([_line(row) for _, row in found if row] + lines))
    return int(any(status for status, _ in found) or len(lines) > len(chosen))


if __name__ == "__main__":
    sys.exit(main())
