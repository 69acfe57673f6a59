"""Trains the quickstart's model with this project and with TRL; compares accuracies.

By default both use the base model, problems, verifier, batch size, number of updates,
learning rate and clip range of configs/quickstart.py. TRL has no dynamic sampling; of
this project's two arms, "plain" trains without it and "full" with it. Reported
seconds exclude evaluation. Runs are saved in the folder --out. The same command resumes
runs of this project, and repeats those of TRL that did not end.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

from configs import quickstart
from configs.reading import user_path
from rl.files import read_rows
from rl.statistics import compare_seeds

_ARMS = ("plain", "full", "trl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "folder of the runs"
    add("--out", type=user_path, required=True, metavar="DIR", help=text)
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="SEED")
    add("--steps", type=int, default=200, help="steps of each run")
    add("--arms", nargs="+", choices=_ARMS, default=_ARMS)
    add("--updates_per_step", type=int, choices=(1, 2, 4, 8), default=2)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains each arm with each seed; returns the learning curves by arm.

    The points of a curve have step, seconds and accuracy. If TRL is an arm, also
    returns a difference for each other arm: the arm's mean final accuracy minus TRL's
    and, with two seeds or more, a 95% interval and p-value.
    """
    steps, updates = arguments.steps, arguments.updates_per_step
    arms: dict[str, Any] = {name: [] for name in arguments.arms}
    for seed, arm in itertools.product(arguments.seeds, arms):
        folder = arguments.out / f"{arm}-{seed}"
        if arm == "trl":
            curve = trl_curve(folder, seed, steps, updates)
        else:
            curve = _this_project(folder, arm, seed, steps, updates)
        base, final = curve[0]["accuracy"], curve[-1]["accuracy"]
        row: dict[str, Any] = {"seed": seed, "base": base, "final": final}
        arms[arm].append(row | {"seconds": curve[-1]["seconds"], "curve": curve})
    result: dict[str, Any] = {"steps": steps, "updates_per_step": updates, "arms": arms}
    finals = {name: [row["final"] for row in rows] for name, rows in arms.items()}
    if trl := finals.pop("trl", None):
        for name, values in finals.items():
            row = {"difference": float(np.mean(values) - np.mean(trl))}
            if found := compare_seeds(trl, values):
                row |= {"interval": found[0], "p_value": found[1]}
            result[f"{name} - trl"] = row
    return result


def _this_project(
    folder: pathlib.Path, arm: str, seed: int, steps: int, updates: int
) -> list[dict[str, float]]:
    prompts = quickstart.get_config().batch.prompts_per_step
    command = [
        *(sys.executable, "-m", "rl.train", "--config=configs/quickstart.py"),
        *(f"--workdir={folder}", f"--config.seed={seed}", f"--config.steps={steps}"),
        f"--config.batch.prompts_per_update={prompts // updates}",
        f"--config.dynamic_sampling.filter={arm == 'full'}",
    ]
    subprocess.run(command, check=True)
    results = json.loads((folder / "summary.json").read_text("utf-8"))
    curve = [{"step": 0, "seconds": 0.0, "accuracy": results["base"]["accuracy"]}]
    seconds = 0.0
    for _, row in read_rows(folder / "metrics.jsonl"):
        seconds += row.get("seconds/step", 0.0)
        if "eval/accuracy" in row and row["step"] > 0:
            point = {"step": row["step"], "seconds": seconds}
            curve.append(point | {"accuracy": row["eval/accuracy"]})
    curve[-1]["accuracy"] = results["final"]["accuracy"]
    return curve


def trl_curve(
    folder: pathlib.Path, seed: int, steps: int, updates: int
) -> list[dict[str, float]]:
    """Returns the learning curve of TRL; trains only if `folder` does not have it."""
    path = folder / f"curve_{steps}_steps_of_{updates}.json"
    if not path.is_file():
        module, numbers = "tools.bench.trl_training", map(str, (seed, steps, updates))
        command = [sys.executable, "-m", module, str(path), *numbers]
        subprocess.run(command, check=True)
    return json.loads(path.read_text("utf-8"))
