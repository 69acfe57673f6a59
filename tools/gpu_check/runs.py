"""Measures the quickstart's learning curve; compares resumed and uninterrupted runs."""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

from rl.files import read_rows
from tools.gpu_check import Row, Rows

# Settings that make evaluation short.
_HELD_OUT = ("data.eval_args", "data.train_args", "model.maker_args")
_SMALL = ("eval.samples=1", *(f"{one}.held_out=32" for one in _HELD_OUT))


def _train(folder: str, run: str, *settings: str, kill_after: int = 0) -> list[Row]:
    """Returns the metrics of the quickstart, killed after `kill_after` steps if set."""
    settings += (f"model.maker_args.cache={folder}/bases",)
    command = [sys.executable, "-m", "rl.train", "--config=configs/quickstart.py"]
    command += [f"--workdir={folder}/{run}", *(f"--config.{one}" for one in settings)]
    process = subprocess.Popen(command, stdout=sys.stderr)
    metrics = pathlib.Path(folder, run, "metrics.jsonl")

    def rows() -> list[Row]:
        return [row for _, row in read_rows(metrics, appended=True)]

    while process.poll() is None:
        if kill_after and len(rows()) > kill_after:
            process.kill()
        time.sleep(0.2)
    return rows()


def quickstart(tiny: bool) -> Rows:
    """Yields some points of the quickstart's learning curve, with seconds by phase."""
    settings = (*_SMALL, "model.maker_args.steps=30", "steps=2") if tiny else ()
    with tempfile.TemporaryDirectory() as folder:
        rows = _train(folder, "run", *settings)
    curve = [
        {k: x for k, x in row.items() if re.search("accuracy|gap|seconds", k)}
        for row in rows[:: max(1, len(rows) // 12)]
    ]
    yield {"what": "quickstart", "rows": len(rows), "curve": curve}


def resume(tiny: bool) -> Rows:
    """Compares three equal deterministic runs; the third is killed and resumed."""
    steps = 4 if tiny else 10
    settings = (*_SMALL, "deterministic=True", "checkpoint.every_steps=2")
    settings += ("dynamic_sampling.filter=False", f"steps={steps}")
    settings += (f"model.maker_args.steps={30 if tiny else 600}",)
    with tempfile.TemporaryDirectory() as folder:
        a, b, killed, c = (
            [
                {key: x for key, x in row.items() if key.startswith("policy/")}
                for row in _train(folder, run, *settings, kill_after=kill)
            ]
            for run, kill in (("a", 0), ("b", 0), ("c", steps // 2), ("c", 0))
        )
    same = {"other_process_same": a == b, "resumed_same": a == c}
    yield {"what": "resume", "rows": len(a), "rows_at_kill": len(killed), **same}
