"""Runs of an ablation: made once, in parallel, resumed, and reported as they were."""

import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import time

import pytest

from configs.reading import read_config
from configs.schema import config_json
from rl.processes.stopping import StopSignals
from tests import forked
from tests.other_processes import ROOT, dotted, environment, python, start_python
from tools.ablation import execute
from tools.ablation.report import markdown, read_result
from tools.ablation.study import make_study

MINE = """
from configs.ablation import Ablation, make_get_config

ABLATIONS = {
    "mine": Ablation(
        question="Does the clip matter?",
        arms={
            "plain": {},
            "low": {"objective.eps_high": 0.2},
            "broken": {"log.samples": 3},
        },
        seeds=(0, 1),
    )
}
get_config = make_get_config(ABLATIONS)
"""
# `rl.train` where a process begins: it leaves what the real one does. An arm with 3
# samples fails; accuracy is 0.5, 0.1 more with each seed and 0.2 less when clipped.
TRAINER = """
import json, os, pathlib, sys, time
from configs.reading import expand_home, read_config
from configs.schema import config_json

flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
workdir = pathlib.Path(flags["workdir"])
config = read_config(flags["config"])
config.seed, config.steps = int(flags["config.seed"]), int(flags["config.steps"])
expand_home(config)
workdir.mkdir(parents=True, exist_ok=True)
with open("began", "a") as began:
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    print(config.objective.eps_high, config.seed, gpus, file=began)
if config.log.samples == 3:
    print("step 1/4")
    sys.exit("error: config.log.samples=3: is refused")
time.sleep(0.5)
(workdir / "config.json").write_text(config_json(config))
identity = dict(base={"w": "1"}, versions={"jax": str(config.seed)}, hosts={})
(workdir / "manifest.json").write_text(json.dumps({"identity": identity}))
accuracy = 0.5 + 0.1 * config.seed - 0.2 * (config.objective.eps_high == 0.2)
rows = [{"step": 0, "eval/accuracy": 0.3}]
rows += [{"step": s, "reward/accuracy": 0.3, "policy/entropy": s / 10,
          "sampling/tokens": 1000, "seconds/step": 1.0} for s in range(1, 5)]
with (workdir / "metrics.jsonl").open("w") as file:
    file.writelines(json.dumps(row) + "\\n" for row in rows)
summary = dict(base={}, final={"accuracy": accuracy}, steps=4, wall_seconds=90.0,
               ended="no group is left" if config.seed == 1 else "", unhealthy="")
(workdir / "summary.json").write_text(json.dumps(summary))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an ablation in which `python -m rl.train` is the trainer above."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl/__init__.py").touch()
    (tmp_path / "rl/train.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def _study(place, name="mine.py:mine", **given):
    return make_study(name, workdir=place / "out", overrides={"steps": 4}, **given)


def _train(runs, slots):
    lines = []
    with StopSignals("stopped") as stop:
        failed = execute.train(runs, slots=slots, stop=stop, announce=lines.append)
    return failed, lines


def _began(place):
    return [line.split() for line in (place / "began").read_text().splitlines()]


def test_runs_are_named_by_their_config_alone(place):
    runs = {(r.arm, r.seed): r for r in _study(place).runs}
    assert [(r.arm, r.seed) for r in _study(place).runs][:4] == [
        ("plain", 0), ("low", 0), ("broken", 0), ("plain", 1),
    ]  # fmt: skip
    assert len({r.workdir for r in runs.values()}) == 6
    assert runs["low", 1].config.seed == 1 and runs["low", 1].config.steps == 4
    # Another ablation that comes to the same config shares the run.
    others = _study(place, "configs/ablations.py:clip_higher")
    named = {(r.arm, r.seed): r.workdir for r in others.runs}
    assert named["eps_high=0.28", 0] == runs["plain", 0].workdir
    assert named["eps_high=0.2", 1] == runs["low", 1].workdir
    assert named["eps_high=0.24", 0] not in {r.workdir for r in runs.values()}


def test_a_command_gives_the_run_its_config_again(place):
    run = _study(place, seeds=[5]).runs[0]
    words = shlex.split(run.command())
    assert words[:3] == ["python", "-m", "rl.train"]
    flags = dict(word.removeprefix("--").split("=", 1) for word in words[3:])
    own = {"config": "mine.py:mine:plain", "workdir": str(run.workdir)}
    assert flags == own | {"config.steps": "4", "config.seed": "5"}
    config = read_config(flags["config"])
    config.steps, config.seed = 4, 5
    assert config_json(config) == config_json(run.config)


def test_finished_runs_are_not_run_again_and_failures_are_printed(place):
    study = _study(place)
    failed, lines = _train(study.pending, [{}])
    assert [str(run) for run in failed] == ["broken, seed 0", "broken, seed 1"]
    assert "broken, seed 0: failed: error: config.log.samples=3: is refused" in lines
    assert lines[1] == "plain, seed 0: done" and len(_began(place)) == 6
    assert [run.arm for run in _study(place).pending] == ["broken", "broken"]
    _train(_study(place).pending, [{}])
    assert len(_began(place)) == 8

    result = read_result(study)
    cells = result["cells"]
    plain, low = (cells[arm]["accuracy"] for arm in ("plain", "low"))
    assert plain["mean"] == pytest.approx(0.55)
    assert (low["mean"], low["seeds"]) == (0.35, 2)
    assert low["difference"]["mean"] == pytest.approx(-0.2)
    assert low["difference"]["p_value"] == pytest.approx(0.1056, abs=5e-5)
    assert cells["broken"] == {}
    # The last of four steps is their last tenth.
    assert cells["low"]["entropy"]["mean"] == pytest.approx(0.4)
    assert cells["low"]["tokens"]["mean"] == 4000
    assert result["differ"] == {"versions.jax": 2}
    assert json.loads(json.dumps(result))["cells"]["low"]["accuracy"]["seeds"] == 2

    page = markdown(result).splitlines()
    assert page[0] == "# mine" and page[2] == "Does the clip matter?"
    assert "4 of 6 runs have ended" in page[4]
    half = 12.7062 * math.sqrt(0.005) / math.sqrt(2) * 100
    (row,) = [line for line in page if line.startswith("| plain (reference)")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "plain (reference)", "2", f"55.0 ± {half:.1f}", "0.400 ± 0.000", "0.00 ± 0.00",
        "1.5 ± 0.0",
    ]  # fmt: skip
    (row,) = [line for line in page if line.startswith("| low |") and "[" in line]
    assert "-20.0 [-50.4, +10.4], p 0.11" in row  # t = 2 sqrt(2), two degrees
    assert "by Holm's method" in "".join(page)
    ends = "has not ended; its log ends with: error: config.log.samples=3: is refused"
    assert f"- broken, seed 0 {ends}" in page
    assert "- low, seed 1 ended after step 4: no group is left." in page
    assert "- The runs differ in versions.jax, which has 2 different values." in page


def test_each_slot_has_one_run_at_a_time(place):
    runs = [run for run in _study(place).runs if run.arm != "broken"]
    gpus = [{"CUDA_VISIBLE_DEVICES": devices} for devices in ("0,1", "2,3")]
    failed, lines = _train(runs, gpus)
    assert failed == [] and len(lines) == 8
    began = _began(place)
    assert [row[2] for row in began].count("0,1") == 2
    assert {row[2] for row in began} == {"0,1", "2,3"}
    # The second began before the first, which takes half a second, had ended.
    assert lines[1].startswith("low, seed 0: started")


def test_every_arm_is_checked_before_anything_runs(tmp_path, monkeypatch):
    bad = MINE.replace('"log.samples": 3', '"sampling.explore": 2.0')
    (tmp_path / "mine.py").write_text(bad)
    settings = {"data.train_args.held_out": 4000, "data.eval_args.held_out": 8}
    settings["model.maker_args.cache"] = str(tmp_path / "bases")
    monkeypatch.setattr(sys, "path", list(sys.path))
    name, out = f"{tmp_path / 'mine.py'}:mine", tmp_path / "out"
    study = make_study(name, workdir=out, overrides=settings)
    with pytest.raises(ValueError) as caught:
        execute.check(study.pending)
    message = "arm 'broken': config.sampling.explore=2.0: must lie in (0, 1]"
    assert str(caught.value) == message
    assert not (tmp_path / "out").exists() and not (tmp_path / "bases").exists()


@pytest.mark.failure(197)
def test_a_wrong_command_is_one_line(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "none.py").write_text("from configs.quickstart import get_config\n")
    (tmp_path / "key.py").write_text(MINE.replace("log.samples", "log.nope"))
    mine, out = f"--config={tmp_path / 'mine.py'}:mine", f"--workdir={tmp_path / 'out'}"
    bad = {
        (): "give --config=configs/ablations.py:NAME",
        (f"--config={tmp_path / 'none.py'}",): "none.py: defines no ABLATIONS",
        (f"--config={tmp_path / 'gone.py'}",): "gone.py: no such file",
        (f"--config={tmp_path / 'key.py'}:mine",): "key.py: unknown key 'nope'",
        (f"{mine}:low",): "ablation 'mine:low': must be one of mine",
        (mine, "--seeds=0,a"): "--seeds=0,a: must be integers",
        (mine, "--seeds=1,1"): "seeds=[1, 1]: give at least one, and none twice",
        (mine, "--config.seed=3"): "config.seed=3: use --seeds instead",
        (mine, "--config.nope=3"): "config.nope: ",
        (mine, "--config.objective.eps_high=0.3"): "config.objective.eps_high=0.3:"
        " replaces all changes of the arm 'low'; remove this flag",
    }
    needs = "tools.ablation.execute", "tools.ablation.report"
    how = dict(needs=needs, cwd=ROOT, env=environment())
    commands = [[*words, out] for words in bad]
    ends = forked.starts(tmp_path, "tools.ablate", commands, **how)
    for end, message in zip(ends, bad.values(), strict=True):
        assert end.returncode in (1, 2), end.args
        assert message in end.stderr and end.stderr.count("\n") == 1, end.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_a_real_ablation_resumes_after_a_kill_and_its_jobs_are_its_runs(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from configs.ablation import Ablation, grid, make_get_config\n"
        "ABLATIONS = {'mine': Ablation(question='', seeds=(0,),\n"
        "    arms=grid({'objective.eps_high': (0.28, 0.2)}))}\n"
        "get_config = make_get_config(ABLATIONS)\n"
    )
    settings = {
        "steps": 8,
        "mesh.cpu_devices": 1,
        "compiled": os.environ["JAX_COMPILATION_CACHE_DIR"],
        "model.maker_args": dict(cache=tmp_path / "bases", steps=100),
        "data": dict(train_args=dict(held_out=4000), eval_args=dict(held_out=8)),
        "rollout": dict(slots=16, group_size=2),
        "batch": dict(prompts_per_step=4, prompts_per_update=2),
        "dynamic_sampling.filter": False,
        "eval.samples": 2,
        "checkpoint.every_steps": 2,
    }
    own = f"--config={tmp_path / 'mine.py'}:mine", f"--workdir={tmp_path / 'out'}"
    flags = (f"--config.{key}={value}" for key, value in dotted(settings).items())
    command = ["-m", "tools.ablate", *own, *flags]
    how = dict(env=environment())
    jobs = tmp_path / "jobs"
    python(*command, f"--jobs={jobs}", check=True, **how)
    first, second = jobs.read_text().splitlines()
    metrics = pathlib.Path(first.rpartition("=")[2]) / "metrics.jsonl"
    log = metrics.parent.with_suffix(".log")

    killed = start_python(*command, stderr=subprocess.DEVNULL, **how)
    while not metrics.exists() or '"step": 4' not in metrics.read_text():
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    # The first arm's process ends with it, and so lets go of its workdir.
    result = tmp_path / "result.json"
    while subprocess.run(["flock", "-n", metrics.parent / ".lock", "true"]).returncode:
        time.sleep(0.05)
    python(*command, f"--json={result}", check=True, **how)
    assert "resuming after step" in log.read_text()
    found = json.loads(result.read_text())
    assert [run["steps"] for run in found["runs"]] == [8, 8]
    accuracy = json.loads((metrics.parent / "summary.json").read_text())["final"]
    assert found["runs"][0]["figures"]["accuracy"] == accuracy["accuracy"]
    assert found["differ"] == {}
    # All have ended: the same command has nothing to do, and neither has a job.
    again = python(*command, **how)
    assert (again.returncode, again.stderr) == (0, "")
    assert "finished already" in python(*shlex.split(second)[1:], **how).stdout
