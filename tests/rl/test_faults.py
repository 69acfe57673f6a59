"""Faults planted into real runs: each is named, ends as documented, and is found again.

One base of random weights and one folder of compiled programs serve them all.
"""

import json
import shutil
import signal
import sys

import numpy as np
import pytest

from rl import checkpoint
from tests import forked
from tests.rl import test_train as runs
from tests.rl.faults import STEP
from tools.report.health import findings
from tools.report.reading import read_run

# Six runs, three replays, three sets of programs to compile.
pytestmark = [pytest.mark.slow, pytest.mark.ci]

TINY = {
    "steps": 9,
    "model.maker_args.steps": 1,
    "model.maker_args.layers": 2,
    "model.maker_args.hidden_size": 32,
    "data.eval": "",
    "reward.function": "tests.rl.examples:parity",
    "rollout.max_response_tokens": 16,
    "rollout.slots": 8,
    "mesh.cpu_devices": 1,
    "batch.row_lengths": "(32,)",
    "batch.micro_tokens": 256,
    "dynamic_sampling.filter": False,
    "alarms.patience": 2,
    "alarms.on_truncated": "warn",
}
FAULTS = {
    "nan": {"data.train": "tests.rl.faults:nan_batch"},
    "rate": {"schedule.learning_rate": 1e9, "schedule.warmup_updates": 0},
    "collapsed": {"rollout.temperature": 0.02, "alarms.on_entropy_low": "stop"},
    "truncated": {"rollout.max_response_tokens": 2, "alarms.on_truncated": "stop"},
    "stale": {
        "data.train": "tests.rl.faults:stale_weights",
        "schedule.learning_rate": 3e-2,
        "alarms.on_sampler_gap": "stop",
    },
    "rollback": {
        "data.train": "tests.rl.faults:nan_batch",
        "alarms.on_skipped_updates": "rollback",
        "alarms.skipped_updates": 1,
    },
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


def _command(workdir, cache, name):
    return runs.command(workdir, cache, **TINY | FAULTS[name])


@pytest.fixture(scope="module")
def ended(tmp_path_factory, cache):
    """All of the runs, each to its end."""
    folder = tmp_path_factory.mktemp("runs")
    commands = [_command(folder / name, cache, name) for name in FAULTS]
    done = runs.starts(folder, commands)
    return {name: (folder / name, d) for name, d in zip(FAULTS, done, strict=True)}


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, ended):
    """What `tools.replay` says of each run's newest dump, and its --json."""
    folder, told = tmp_path_factory.mktemp("replays"), {}
    names = ("nan", "rate", "stale")
    commands = [
        [str(_dump(ended[name][0])), "--json", str(folder / name)] for name in names
    ]
    done = forked.starts(
        folder, "tools.replay", commands, needs=("rl.build",), cwd=runs.ROOT,
        env=runs.environment(),
    )  # fmt: skip
    for name, d in zip(names, done, strict=True):
        assert d.returncode == 0, d.stderr
        told[name] = d.stdout, json.loads((folder / name).read_text())
    return told


def _dump(workdir):
    return max((workdir / "dumps").iterdir(), key=lambda path: int(path.name))


def _rows(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").open()]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("nan", "update", "1 updates skipped"),
        ("nan", "dump", "1 updates in a row were skipped"),
        ("rate", "update", "updates skipped"),
        ("collapsed", "alarm", "entropy_low: "),
        ("collapsed", "end", "no summary.json"),
        ("truncated", "alarm", "truncated: "),
        ("stale", "alarm", "sampler_gap: "),
        ("rollback", "rollback", "back to step 6: skipped_updates: 1"),
    ],
)
def test_the_report_names_it(ended, name, kind, said):
    found = findings(read_run(ended[name][0]))
    assert [f for f in found if f.kind == kind and said in f.text], found


def test_a_nan_in_a_batch_costs_its_update_and_is_dumped(ended):
    workdir, done = ended["nan"]
    assert done.returncode == 0, done.stderr
    assert f"WARNING: step {STEP}: 1 updates in a row were skipped" in done.stdout
    # The group with the NaN was left over, and is of an older version.
    assert (
        "not finite: policy/loss, policy/grad_norm, off_policy/stale_gap" in done.stdout
    )
    assert f"dumped: python -m tools.replay {workdir}/dumps/{STEP}" in done.stdout
    assert json.loads((workdir / "summary.json").read_text())["skipped"] == 1
    for array in runs._weights(workdir).values():
        assert np.isfinite(array).all()


@pytest.mark.parametrize(
    "name,message",
    [
        ("rate", "skipped_updates: "),
        ("collapsed", "entropy_low: entropy 0.0"),
        ("truncated", "truncated: 100% of the completions are truncated"),
        ("stale", "sampler_gap: sampler and trainer differ by 0."),
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
    about = json.loads((_dump(workdir) / "dump.json").read_text())
    assert about["cause"].startswith(message) and "Alarm" in about["error"]


def test_a_step_is_repeated_bit_for_bit(replayed):
    for name, (out, told) in replayed.items():
        assert told["steps"], name
        assert all(step["differs"] == [] for step in told["steps"]), (name, out)
        assert f"step {told['step']}: bit for bit as it was" in out


def test_the_completion_the_token_and_the_tensor_are_named(replayed):
    out, told = replayed["nan"]
    found = told["found"]
    assert (found["step"], found["update"], found["token"]) == (STEP, 1, 1)
    assert found["completion"]["index"] == 3
    assert found["tensor"] == "sampler_logprobs"
    assert "its sampler_logprobs is nan" in out
    problem = found["completion"]["problem"]
    assert f"completion 3 of problem '{problem}' (reward " in out


def test_a_rate_that_blows_the_weights_up_is_found_in_the_layers(replayed):
    out, told = replayed["rate"]
    found = told["found"]
    assert found["step"] == 1 and "the largest parameter before it: 1e+09" in out
    assert found["tensor"]["layer"] == 0 and not found["tensor"]["gradient"]
    assert found["tensor"]["where"].startswith("models/")


def test_stale_weights_are_told_by_the_version_that_fits(replayed):
    out, told = replayed["stale"]
    gaps = {int(v): gap for v, gap in told["found"]["gap_by_version"].items()}
    assert min(gaps, key=gaps.get) == 2 and gaps[2] < 1e-5 < 0.1 < gaps[max(gaps)]
    assert "fit version 2 best: 0.0000 nats per token" in out


def test_a_dump_that_does_not_hold_all_steps_is_refused(ended, tmp_path):
    dump = shutil.copytree(_dump(ended["stale"][0]), tmp_path / "dump")
    first = min((dump / "recorder").glob("*.safetensors"))
    first.unlink()
    done = runs.run([sys.executable, "-m", "tools.replay", str(dump)], check=False)
    assert done.returncode == 1 and "recorder.max_gb" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rollback_draws_something_else_and_goes_on(ended):
    workdir, done = ended["rollback"]
    assert done.returncode == 0, done.stderr
    assert f"step {STEP}: rolling back to step 6: skipped_updates: 1" in done.stdout
    rows = _rows(workdir)
    assert [row["step"] for row in rows] == list(range(1, TINY["steps"] + 1))
    assert [row["alarms/rollbacks"] for row in rows] == [0] * 6 + [1] * 3
    assert not any(row["policy/skipped"] for row in rows)
    # Up to there it is the run with the fault, and from there another one.
    plain = _rows(ended["nan"][0])
    loss = [
        (a["policy/loss"], b["policy/loss"]) for a, b in zip(rows, plain, strict=True)
    ]
    assert all(a == b for a, b in loss[:6]) and not any(a == b for a, b in loss[6:])
    history = json.loads((workdir / "manifest.json").read_text())["history"]
    assert history[-1]["after"] == 6 and history[-1]["rollback"]["from"] == STEP


@pytest.mark.failure(30)
def test_killed_after_a_rollback_it_ends_bit_for_bit_the_same(ended, cache, tmp_path):
    again = tmp_path / "again"
    command = _command(again, cache, "rollback")
    runs.kill_at(command, STEP, after="rolling back")
    assert "resuming after step 6" in runs.run(command).stdout
    runs._assert_same_run(ended["rollback"][0], again)


@pytest.mark.failure(30)
def test_broken_off_in_evaluation_and_export_it_ends_as_if_nothing_had_been(
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
    rows = _rows(tmp_path / "again")
    evaluations = [row for row in rows if "eval/accuracy" in row]
    scores = {row["step"]: row["eval/accuracy"] for row in evaluations}
    assert [row["step"] for row in evaluations] == [0, 2, 4]
    proofs = checkpoint.proofs_in(tmp_path / "again" / "checkpoints")
    assert {step: proof.score for step, proof in proofs.items()} == {
        2: scores[2], 4: scores[4],
    }  # fmt: skip


def test_a_fault_that_stays_is_rolled_back_a_few_times_and_then_ends(cache, tmp_path):
    changes = TINY | FAULTS["stale"] | {"alarms.on_sampler_gap": "rollback"}
    done = runs.run(runs.command(tmp_path / "w", cache, **changes), check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.count("rolling back to step 2") == 2
    assert "rolled back 2 times before (alarms.max_rollbacks)" in done.stderr
