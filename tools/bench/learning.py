"""Trains the quickstart's model with this project and with TRL; compares accuracies.

By default both use the base model, problems, verifier, batch size, number of updates,
learning rate and clip range of configs/quickstart.py. TRL has no dynamic sampling; of
this project's two arms, "plain" trains without it and "full" with it. Reported
seconds exclude evaluation. Runs are saved in the folder --out. The same command resumes
runs of this project, but repeats an unfinished TRL run from its start.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from configs import quickstart
from configs.base import RunConfig, from_config
from configs.reading import user_path
from configs.schema import differences
from rl.base_model import base_folder
from rl.files import read_rows, replace_json
from rl.problems.arithmetic import problems
from rl.processes.devices import start_devices
from rl.statistics import compare_seeds

_GOAL = 0.8  # held-out accuracy
_ARMS = ("plain", "full", "trl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=user_path, required=True, metavar="DIR", help="folder of the runs"
    )
    commas = "separated by commas (default: %(default)s)"
    parser.add_argument(
        "--seeds", type=_seeds, default="0,1,2", help=f"seeds, {commas}"
    )
    parser.add_argument("--steps", type=int, default=200, help="steps of each run")
    parser.add_argument(
        "--arms", type=_arms, default=",".join(_ARMS), help=f"arms, {commas}"
    )
    parser.add_argument("--updates_per_step", type=int, choices=(1, 2, 4, 8), default=2)


def _seeds(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be whole numbers and commas only"
        )
    return [int(seed) for seed in text.split(",")]


def _arms(text: str) -> list[str]:
    arms = text.split(",")
    if unknown := [arm for arm in arms if arm not in _ARMS]:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is not an arm; choose from {', '.join(_ARMS)}"
        )
    return arms


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains each arm with each seed; returns the `summary` of each run by arm.

    If TRL is an arm, also returns a difference for each other arm: the arm's mean final
    accuracy minus TRL's and, with two seeds or more, a 95% interval and p-value.
    """
    names, steps, updates = arguments.arms, arguments.steps, arguments.updates_per_step
    shared = _trl_settings(steps, updates) if "trl" in names else {}
    arms: dict[str, Any] = {name: [] for name in names}
    for seed in arguments.seeds:
        for arm in names:
            folder = arguments.out / f"{arm}-{seed}"
            if arm == "trl":
                curve = _trl(folder, shared | {"seed": seed})
            else:
                curve = _this_project(folder, arm, seed, steps, updates)
            arms[arm].append(summary(curve) | {"seed": seed})
    result: dict[str, Any] = {"steps": steps, "updates_per_step": updates, "arms": arms}
    finals = {name: [row["final"] for row in rows] for name, rows in arms.items()}
    if trl := finals.pop("trl", None):
        for name, values in finals.items():
            row: dict[str, Any] = {"difference": float(np.mean(values) - np.mean(trl))}
            if found := compare_seeds(trl, values):
                row |= {"interval": found[0], "p_value": found[1]}
            result[f"{name} - trl"] = row
    return result


def summary(curve: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Summarizes a learning curve; its points have step, seconds and accuracy.

    `steps_to_80` and `seconds_to_80` are the step and the seconds of the first point
    with an accuracy of at least 80%, or None.
    """
    reached = next((p for p in curve if p["accuracy"] >= _GOAL), None)
    return {
        "base": curve[0]["accuracy"],
        "final": curve[-1]["accuracy"],
        "seconds": curve[-1]["seconds"],
        "steps_to_80": reached and reached["step"],
        "seconds_to_80": reached and reached["seconds"],
        "curve": list(curve),
    }


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


def _trl(folder: pathlib.Path, settings: dict[str, Any]) -> list[dict[str, float]]:
    """Returns the saved learning curve of a TRL run; trains if there is none."""
    saved, curve = folder / "settings.json", folder / "curve.json"
    if curve.is_file():
        if found := differences(json.loads(saved.read_text("utf-8")), settings):
            changed = ", ".join(key for key, _, _ in found)
            raise ValueError(
                f"{curve}: this run had other settings ({changed}); delete {folder} to"
                " repeat it, or give another --out"
            )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        replace_json(saved, settings)
        command = [sys.executable, "-m", "tools.bench.trl_training"]
        subprocess.run([*command, str(saved), str(curve)], check=True)
    return json.loads(curve.read_text("utf-8"))


def _trl_settings(steps: int, updates: int) -> dict[str, Any]:
    c: RunConfig = from_config(quickstart.get_config())
    start_devices(c)  # the number of devices changes rounding in the base model

    def rows(arguments: Any) -> list[dict[str, str]]:
        template = c.data.template
        return [
            {"prompt": template.format(problem=p.problem), "answer": p.answers[0]}
            for p in problems(**arguments)
        ]

    completions = c.batch.prompts_per_step * c.rollout.group_size
    return {
        "base": str(base_folder(c)),
        "train": rows(c.data.train_args),
        "held_out": rows(c.data.eval_args),
        "every": c.eval.every_steps,
        "problems": c.eval.problems,
        "samples": c.eval.samples,
        # Fields of trl.GRPOConfig.
        "trl": {
            "max_steps": updates * steps,
            "steps_per_generation": updates,
            "logging_steps": updates,
            "per_device_train_batch_size": completions // updates,
            "num_generations": c.rollout.group_size,
            "max_completion_length": c.rollout.max_response_tokens,
            "epsilon": c.objective.eps_low,
            "epsilon_high": c.objective.eps_high,
            "learning_rate": c.schedule.learning_rate,
            "warmup_steps": c.schedule.warmup_updates,
            "adam_beta1": c.optimizer.b1,
            "adam_beta2": c.optimizer.b2,
            "max_grad_norm": c.optimizer.max_grad_norm,
        },
    }
