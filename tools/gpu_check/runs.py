"""Whole runs of the quickstart: its curve, and whether a killed one resumes alike."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from tools.gpu_check.__main__ import say


def _train(workdir: pathlib.Path, *flags: str, kill_after: int = 0) -> list[dict]:
    """Run the quickstart, killed after some rows of metrics.jsonl; returns the rows."""
    command = [sys.executable, "-m", "rl.train", "--config=configs/quickstart.py"]
    process = subprocess.Popen([*command, f"--workdir={workdir}", *flags])
    metrics = workdir / "metrics.jsonl"

    def rows() -> list[dict]:
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [json.loads(line) for line in lines]

    while process.poll() is None:
        if kill_after and len(rows()) > kill_after:
            process.kill()
        time.sleep(0.2)
    return rows()


def quickstart(tiny: bool) -> None:
    flags = ["--config.model.maker_args.steps=30", "--config.steps=2"] if tiny else []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        flags.append(f"--config.model.maker_args.cache={folder}/bases")
        rows = _train(pathlib.Path(folder, "run"), *flags)
    curve = [
        {
            k: x
            for k, x in row.items()
            if "accuracy" in k or "gap" in k or "seconds/" in k
        }
        for row in rows[:: max(1, len(rows) // 12)]
    ]
    wall_s = time.monotonic() - began
    say(what="quickstart", rows=len(rows), wall_s=wall_s, curve=curve)


def resume(tiny: bool) -> None:
    """Three deterministic runs, one of them killed: do their updates agree?"""
    steps = 4 if tiny else 10
    found = []
    with tempfile.TemporaryDirectory() as folder:
        flags = (
            f"deterministic=True steps={steps} checkpoint.every_steps=2 eval.samples=1"
            f" model.maker_args.cache={folder}/bases dynamic_sampling.filter=False"
            f" model.maker_args.steps={30 if tiny else 600}"
        )
        settings = [f"--config.{flag}" for flag in flags.split()]
        for name, kill in (("a", 0), ("b", 0), ("c", steps // 2), ("c", 0)):
            rows = _train(pathlib.Path(folder, name), *settings, kill_after=kill)
            policy = [{k: x for k, x in r.items() if k[:7] == "policy/"} for r in rows]
            found.append(policy)
    a, b, killed, c = found
    say(
        what="resume", rows=len(a), rows_at_kill=len(killed), other_process_same=a == b,
        resumed_same=a == c,
    )  # fmt: skip
