"""Trains the quickstart's model with this project and with TRL; compares the curves.

Both use the base model, problems, verifier, batch size, number of updates, learning
rate and clip range of configs/quickstart.py. TRL has no dynamic sampling, so this
project runs without it ("plain") and with it ("full"). Reported seconds exclude
evaluation. Runs are saved in DIR; the same command resumes them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from configs import quickstart
from configs.base import RunConfig, from_config
from configs.reading import user_path
from rl.base_model import base_folder
from rl.files import read_rows, replace_json
from rl.problems.arithmetic import problems
from rl.processes.devices import start_devices
from rl.statistics import compare_seeds

_GOAL = 0.8  # held-out accuracy
_TRL = "import sys; from tools.bench import trl_training as t; t.run(*sys.argv[1:])"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=user_path, required=True, metavar="DIR")
    parser.add_argument("--seeds", default="0,1,2", help="of training, with commas")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--arms", default="plain,full,trl", help="with commas")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns accuracy and seconds by arm and seed, and differences from TRL."""
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    arms: dict[str, Any] = {}
    names = arguments.arms.split(",")
    shared = _settings() if "trl" in names else {}
    for seed in seeds:
        for arm in names:
            folder = arguments.out / f"{arm}-{seed}"
            if arm == "trl":
                of_run = {"out": str(folder), "seed": seed, "steps": arguments.steps}
                curve = _trl(folder, shared | of_run)
            else:
                curve = _this(folder, arm=arm, seed=seed, steps=arguments.steps)
            arms.setdefault(arm, []).append(summary(curve) | {"seed": seed})
    result: dict[str, Any] = {"steps": arguments.steps, "arms": arms}
    if "trl" in arms:
        theirs = [row["final"] for row in arms["trl"]]
        for arm in arms.keys() - {"trl"}:
            finals = [row["final"] for row in arms[arm]]
            difference = float(np.mean(finals) - np.mean(theirs))
            found = compare_seeds(theirs, finals)
            result[f"{arm} - trl"] = {"difference": difference} | (
                {"interval": found[0], "p_value": found[1]} if found else {}
            )
    return result


def summary(curve: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Returns a curve, its ends, and when its accuracy first reaches 80%."""
    reached = next((p for p in curve if p["accuracy"] >= _GOAL), None)
    return {
        "base": curve[0]["accuracy"],
        "final": curve[-1]["accuracy"],
        "seconds": curve[-1]["seconds"],
        "steps_to_80": reached and reached["step"],
        "seconds_to_80": reached and reached["seconds"],
        "curve": list(curve),
    }


def _this(
    folder: pathlib.Path, *, arm: str, seed: int, steps: int
) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "rl.train", "--config=configs/quickstart.py"]
    command += [f"--workdir={folder}", f"--config.seed={seed}"]
    command += [f"--config.steps={steps}"]
    command += [f"--config.dynamic_sampling.filter={arm == 'full'}"]
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


def _trl(folder: pathlib.Path, settings: dict[str, Any]) -> list[dict[str, float]]:
    asked, curve = folder / "settings.json", folder / "curve.json"
    folder.mkdir(parents=True, exist_ok=True)
    replace_json(asked, settings)
    if not curve.is_file():
        subprocess.run([sys.executable, "-c", _TRL, asked, curve], check=True)
    return json.loads(curve.read_text("utf-8"))


def _settings() -> dict[str, Any]:
    c: RunConfig = from_config(quickstart.get_config())
    start_devices(c)  # the number of devices changes how the base model is rounded

    def rows(arguments: Any) -> list[dict[str, str]]:
        template = c.data.template
        return [
            {"prompt": template.format(problem=p.problem), "answer": p.answers[0]}
            for p in problems(**arguments)
        ]

    return {
        "base": str(base_folder(c)),
        "train": rows(c.data.train_args),
        "held_out": rows(c.data.eval_args),
        "every": c.eval.every_steps,
        "problems": c.eval.problems,
        "samples": c.eval.samples,
        "prompts_per_step": c.batch.prompts_per_step,
        "group_size": c.rollout.group_size,
        "max_response_tokens": c.rollout.max_response_tokens,
        "eps_low": c.objective.eps_low,
        "eps_high": c.objective.eps_high,
        "learning_rate": c.schedule.learning_rate,
        "warmup_updates": c.schedule.warmup_updates,
        "b1": c.optimizer.b1,
        "b2": c.optimizer.b2,
        "max_grad_norm": c.optimizer.max_grad_norm,
    }
