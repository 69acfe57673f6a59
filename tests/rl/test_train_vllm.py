"""Training with real vLLM servers: every schedule, and a server that dies."""

import json
import os
import pathlib
import signal
import time
from subprocess import STDOUT

import pytest

from models.safetensors_io import read_tensors
from rl.checksums import LOOP_FILE
from rollout.vllm import supervisor
from tests.metrics_page import documented
from tests.other_processes import dotted, start_python
from tests.rollout.vllm import policies

pytestmark = pytest.mark.vllm

STEPS = 5


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


def parity(text, problem):
    return float(len(text) % 2)


def _start(workdir, bases, **changes):
    policies.needs_vllm()
    settings = {
        "steps": STEPS,
        "model.maker_args": dict(cache=bases, steps=2),
        # A base that knows nothing yet differs in this between completions.
        "reward.function": "tests.rl.test_train_vllm:parity",
        "data.eval": "",
        "rollout": dict(backend="vllm", group_size=4),
        "rollout.vllm": dict(python=policies.PYTHON, enforce_eager=True),
        "dynamic_sampling.filter": False,
        # One update per step: the policy is its own old policy.
        "batch": dict(prompts_per_step=16, prompts_per_update=16),
        "schedule.warmup_updates": 0,
    }
    settings = dotted(settings) | changes
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    command = "-m", "rl.train", "--config=configs/quickstart.py", f"--workdir={workdir}"
    how = dict(env=os.environ | {"XLA_FLAGS": ""}, stderr=STDOUT)
    return start_python(*command, *flags, **how)


def _rows(workdir):
    path = workdir / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _wait_for_rows(run, workdir, count):
    deadline = time.monotonic() + 600
    while len(_rows(workdir)) < count:
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def _finish(run, workdir):
    output, _ = run.communicate(timeout=900)
    assert run.returncode == 0, output[-4000:]
    rows = _rows(workdir)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    return rows


@pytest.mark.failure(3)
@pytest.mark.failure(4)
@pytest.mark.parametrize(
    ("schedule", "mean_lags"),
    [("sync", [0, 0, 0, 0, 0]), ("one_step_off", [0, 1, 1, 1, 1]), ("async", None)],
)
def test_a_schedule_trains(tmp_path, bases, schedule, mean_lags):
    run = _start(tmp_path, bases, **{"rollout.schedule": schedule})
    rows = _finish(run, tmp_path)
    pattern = documented()
    for row in rows:
        unnamed = {k for k in row.keys() - {"step"} if not pattern.fullmatch(k)}
        assert unnamed == set()
        assert row["sampler/probe_gap_mean"] < 1e-4
        # The sampler is not the trainer, so every token is weighted.
        assert row["off_policy/tokens"] == 1
        assert 0.5 < row["off_policy/effective_sample_size"] <= 1.000001
        # The first update's ratio is 1 whatever the sampler said.
        assert row["policy/ratio_mean"] == row["policy/ratio_max"] == 1
        stale = "off_policy/tokens_stale_"
        assert sum(v for k, v in row.items() if k.startswith(stale)) > 0

    def column(name):
        return [row[name] for row in rows if name in row]

    lags = column("off_policy/staleness_mean")
    fresh, stale = column("policy/sampler_gap_max"), column("off_policy/stale_gap")
    assert max(fresh) < 1e-4
    # One version apart, log-probs differ by what an update moved them.
    assert bool(stale) == (schedule != "sync") and min(stale, default=1) > 1e-5
    if mean_lags is None:
        assert 0 < max(lags) and max(column("off_policy/staleness_max")) <= 2
    else:
        assert lags == mean_lags


def test_adapters_are_published_alone(tmp_path, bases):
    changes = {"model.lora.rank": 4, "schedule.learning_rate": 1e-2}
    run = _start(tmp_path, bases, **changes, **{"rollout.vllm.publish": "adapter"})
    rows = _finish(run, tmp_path)
    assert max(row["sampler/probe_gap_mean"] for row in rows) < 1e-4
    assert max(row["policy/sampler_gap_max"] for row in rows) < 1e-3
    exported = read_tensors(tmp_path / "adapter/adapter_model.safetensors")
    trained = [array.any() for name, array in exported.items() if "lora_B" in name]
    assert trained and all(trained)


@pytest.mark.failure(11)
@pytest.mark.failure(12)
def test_a_run_goes_on_when_its_server_is_killed(tmp_path, bases):
    run = _start(tmp_path, bases)
    _wait_for_rows(run, tmp_path, 2)
    engines = []
    for pid in supervisor.descendants(run.pid):
        title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"EngineCore" in title:
            engines.append(pid)
    (engine,) = engines
    os.kill(engine, signal.SIGKILL)
    rows = _finish(run, tmp_path)
    assert rows[0]["sampler/restarts"] == 0
    assert rows[-1]["sampler/restarts"] == 1
    assert max(row["policy/sampler_gap_max"] for row in rows) < 1e-4


def _drawn(workdir):
    """The last checkpoint's step, and the problems drawn by then."""
    last = max((workdir / "checkpoints").iterdir(), key=lambda path: int(path.name))
    problems = json.loads((last / LOOP_FILE).read_text())["rollouts"]["problems"]
    return int(last.name), problems["streams"], problems["drawn"]


@pytest.mark.slow
@pytest.mark.failure(30)
@pytest.mark.parametrize("schedule", ["sync", "async"])
def test_a_killed_trainer_samples_every_problem_once(tmp_path, bases, schedule):
    settings = {"rollout.schedule": schedule, "checkpoint.every_steps": 1}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    _finish(_start(whole, bases, **settings), whole)
    run = _start(killed, bases, **settings)
    _wait_for_rows(run, killed, 3)
    run.kill()
    run.communicate()
    rows = _finish(_start(killed, bases, **settings), killed)
    # All of them trained, since none is filtered: sixteen problems a step.
    assert [row["sampling/groups"] for row in rows] == [16] * STEPS
    step, streams, drawn = _drawn(killed)
    assert (step, streams, drawn) == _drawn(whole)
    assert sum(count for _, count in drawn) == 16 * STEPS
