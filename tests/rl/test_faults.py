"""Faults planted into real runs: each is named, ends as documented, and is dumped.

One base of random weights and one folder of compiled programs serve them all.
"""

import json
import shutil
import signal

import numpy as np
import pytest
import safetensors.numpy

from rl import checkpoint
from tests.other_processes import dotted
from tests.rl import test_train as runs
from tests.rl.faults import STEP
from tools.report.health import findings
from tools.report.reading import read_runs

# Five runs, three sets of programs to compile.
pytestmark = [pytest.mark.slow, pytest.mark.ci]

TINY = {
    "steps": 9,
    "model.maker_args": dict(steps=1, layers=2, hidden_size=32),
    "data.eval": "",
    "reward.function": "tests.rl.examples:parity",
    "rollout": dict(max_response_tokens=16, slots=8),
    "mesh.cpu_devices": 1,
    "batch": dict(row_lengths="(32,)", micro_tokens=256),
    "dynamic_sampling.filter": False,
    "alarms": dict(patience=2, stop_on=("unjudged", "skipped_updates")),
}
TINY = dotted(TINY)
FAULTS = {
    "nan": {"data.train": "tests.rl.faults:nan_batch"},
    "rate": {"schedule.learning_rate": 1e9, "schedule.warmup_updates": 0},
    "collapsed": {"rollout.temperature": 0.02, "alarms.stop_on": ("entropy_low",)},
    "truncated": {"rollout.max_response_tokens": 2, "alarms.stop_on": ("truncated",)},
    "stale": {
        "data.train": "tests.rl.faults:stale_weights",
        "schedule.learning_rate": 3e-2,
        "alarms.stop_on": ("sampler_gap",),
    },
}


def _command(workdir, cache, name):
    return runs.command(workdir, cache, **TINY | FAULTS[name])


@pytest.fixture(scope="module")
def ended(tmp_path_factory, cache):
    """All of the runs, each to its end."""
    folder = tmp_path_factory.mktemp("runs")
    commands = [_command(folder / name, cache, name) for name in FAULTS]
    done = runs.starts(folder, commands)
    return {name: (folder / name, d) for name, d in zip(FAULTS, done, strict=True)}


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("nan", "update", "updates skipped: 1"),
        ("nan", "dump", "not finite: update 1 of 2; see dumps/7"),
        ("rate", "update", "updates skipped"),
        ("collapsed", "alarm", "entropy_low: "),
        ("collapsed", "end", "stopped or killed"),
        ("truncated", "alarm", "truncated: "),
        ("stale", "alarm", "sampler_gap: "),
    ],
)
def test_the_report_names_it(ended, name, kind, said):
    found = findings(*read_runs(ended[name][:1]))
    assert [f for f in found if f.kind == kind and said in f.text], found


def test_a_nan_in_a_batch_costs_its_update_and_is_dumped(ended):
    workdir, done = ended["nan"]
    assert done.returncode == 0, done.stderr
    assert f"WARNING: step {STEP}: skipped updates in a row: 1, " in done.stdout
    # The group with the NaN was left over, and is of an older version.
    names = "policy/loss, policy/grad_norm, off_policy/stale_gap"
    assert f"not finite, such as {names}" in done.stdout
    assert f"dumped the updates of step {STEP} to {workdir}/dumps/{STEP}" in done.stdout
    assert json.loads((workdir / "summary.json").read_text())["skipped"] == 1
    for array in runs._weights(workdir).values():
        assert np.isfinite(array).all()


@pytest.mark.parametrize(
    "name,message",
    [
        ("rate", "skipped_updates: "),
        ("collapsed", "entropy_low: entropy 0.0"),
        ("truncated", "truncated: 100% of the completions are truncated"),
        ("stale", "sampler_gap: log-probabilities of sampler and trainer differ"),
    ],
)
@pytest.mark.failure(4)
@pytest.mark.failure(27)
@pytest.mark.failure(28)
@pytest.mark.failure(38)
def test_a_fault_that_lasts_ends_the_run_by_its_name(ended, name, message):
    workdir, done = ended[name]
    assert done.returncode == 3, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: {message}") and "Traceback" not in done.stderr
    assert not (workdir / "hf").exists()


def test_a_dump_repeats_its_step(ended, cache, tmp_path):
    workdir, _ = ended["nan"]
    dump = workdir / "dumps" / str(STEP)
    about = json.loads((dump / "dump.json").read_text())
    assert about["step"] == STEP and about["checkpoint"] == STEP - 1
    assert [u["skipped"] for u in about["updates"]] == [1.0, 0.0]
    rates = [hyper["learning_rate"] for hyper in about["hypers"]]
    assert rates == sorted(rates) and rates[0] > 0
    batches = safetensors.numpy.load_file(dump / "batches.safetensors")
    nans = {name for name, x in batches.items() if np.isnan(x).any()}
    assert nans == {"0/0/sampler_logprobs"}
    rows = runs._rows(dump / "completions.jsonl")
    assert len(rows) == 4 * 8
    (row,) = (r for r in rows if None in r["sampler_logprobs"])  # null for NaN
    assert [x is None for x in row["sampler_logprobs"]][:3] == [False, True, False]
    # As docs/monitoring.md says: a copy without newer checkpoints repeats the step.
    again = tmp_path / "again"
    shutil.copytree(workdir, again, ignore=shutil.ignore_patterns("dumps", "hf"))
    shutil.rmtree(again / "checkpoints")
    shutil.copytree(dump / "checkpoint", again / "checkpoints")
    (again / "summary.json").unlink()
    command = _command(again, cache, "nan")
    done = runs.run([*command, f"--config.steps={STEP}", "--accept_changes"])
    assert f"resuming after step {STEP - 1}" in done.stdout
    for name in ("batches.safetensors", "completions.jsonl", "dump.json"):
        copy = again / "dumps" / str(STEP) / name
        assert copy.read_bytes() == (dump / name).read_bytes()


@pytest.mark.failure(30)
def test_broken_off_in_evaluation_and_export_it_ends_the_same(
    cache, tmp_path, monkeypatch
):
    monkeypatch.setenv("STARTS_LEFT", str(tmp_path / "left"))
    changes = {
        "data.train": "tests.rl.faults:ended_around_an_evaluation",
        "data.eval": "rl.problems.arithmetic:problems",
        "steps": 4,
        "eval.every_steps": 2,
        "checkpoint.every_steps": 4,
        "checkpoint.grace_seconds": 1.5,
    }
    ended = []
    for name, starts in (("whole", "0"), ("again", "3")):
        (tmp_path / "left").write_text(starts)
        command = runs.command(tmp_path / name, cache, **TINY | changes)
        ended.append([runs.run(command, check=False) for _ in range(int(starts) + 1)])
    codes = [[done.returncode for done in starts] for starts in ended]
    stopped = 128 + signal.SIGTERM
    assert codes == [[0], [stopped, -signal.SIGKILL, stopped, 0]], ended
    in_export = ended[1][2]
    assert in_export.stderr.splitlines()[-1].startswith("stopped: the same command")
    assert "Traceback" not in in_export.stderr
    runs._assert_same_run(tmp_path / "whole", tmp_path / "again")
    rows = runs._rows(tmp_path / "again" / "metrics.jsonl")
    evaluations = [row for row in rows if "eval/accuracy" in row]
    scores = {row["step"]: row["eval/accuracy"] for row in evaluations}
    assert [row["step"] for row in evaluations] == [0, 2, 4]
    records = checkpoint.records_in(tmp_path / "again" / "checkpoints")
    assert {step: record.score for step, record in records.items()} == {
        2: scores[2], 4: scores[4],
    }  # fmt: skip
