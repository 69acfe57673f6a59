"""Runs the quickstart: measures its curve, and compares a killed and resumed run."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from tools.gpu_check.__main__ import say

# Settings that make evaluation short.
_SMALL = (
    "eval.samples=1",
    "data.eval_args.held_out=32",
    "data.train_args.held_out=32",
    "model.maker_args.held_out=32",
)


def _train(
    workdir: pathlib.Path, *settings: str, kill_after: int = 0
) -> list[dict[str, Any]]:
    """Runs the quickstart and returns the rows of metrics.jsonl.

    If `kill_after` is set, the run is killed once there are more rows than that.
    """
    cache = workdir.parent / "bases"
    settings += (f"model.maker_args.cache={cache}",)
    command = [sys.executable, "-m", "rl.train", "--config=configs/quickstart.py"]
    command += [f"--workdir={workdir}", *(f"--config.{one}" for one in settings)]
    process = subprocess.Popen(command)
    metrics = workdir / "metrics.jsonl"

    def rows() -> list[dict[str, Any]]:
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line) for line in lines]

    while process.poll() is None:
        if kill_after and len(rows()) > kill_after:
            process.kill()
        time.sleep(0.2)
    return rows()


def quickstart(tiny: bool) -> None:
    settings = (*_SMALL, "model.maker_args.steps=30", "steps=2") if tiny else ()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows = _train(pathlib.Path(folder, "run"), *settings)
    shown = ("accuracy", "gap", "seconds/")
    curve = [
        {k: x for k, x in row.items() if any(part in k for part in shown)}
        for row in rows[:: max(1, len(rows) // 12)]
    ]
    wall_s = time.monotonic() - began
    say(what="quickstart", rows=len(rows), wall_s=wall_s, curve=curve)


def resume(tiny: bool) -> None:
    """Compares the updates of three deterministic runs; one is killed and resumed."""
    steps = 4 if tiny else 10
    settings = (
        *_SMALL,
        "deterministic=True",
        f"steps={steps}",
        "checkpoint.every_steps=2",
        "dynamic_sampling.filter=False",
        f"model.maker_args.steps={30 if tiny else 600}",
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kill in (("a", 0), ("b", 0), ("c", steps // 2), ("c", 0)):
            rows = _train(pathlib.Path(folder, name), *settings, kill_after=kill)
            policy = [{k: x for k, x in r.items() if k[:7] == "policy/"} for r in rows]
            found.append(policy)
    a, b, killed, c = found
    say(
        what="resume", rows=len(a), rows_at_kill=len(killed), other_process_same=a == b,
        resumed_same=a == c,
    )  # fmt: skip
