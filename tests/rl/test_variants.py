"""Runs with carried groups or signal sampling: what they report, and restarts."""

import json

import pytest

from tests.rl import test_train as runs

VARIANTS = {
    "carry": {
        "dynamic_sampling.carry": True,
        "dynamic_sampling.max_age": 1,
        "rollout.slots": 64,
    },
    "signal": {"sampling.policy": "signal", "sampling.half_life": 3.0},
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


def _command(workdir, cache, variant):
    settings = {**runs.ABLE, "steps": 6, "checkpoint.every_steps": 1}
    return runs.command(workdir, cache, **settings, **VARIANTS[variant])


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    workdirs = {}
    for variant in VARIANTS:
        workdirs[variant] = tmp_path_factory.mktemp(variant) / "work"
        runs.run(_command(workdirs[variant], cache, variant))
    return workdirs


def _steps(workdir, metric):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    rows = [row for row in rows if metric in row]
    assert len(rows) == 6
    return rows


def test_tokens_of_two_versions_are_told_apart(finished):
    rows = _steps(finished["carry"], "sampling/partial")
    assert rows[0]["sampling/partial"] == 0
    for before, row in zip(rows, rows[1:], strict=False):
        assert 0 < row["sampling/partial"] <= before["sampling/unfinished"]
        assert 1 <= row["off_policy/staleness_max"] <= 2
        # The sampler is the trainer; what it drew before the last updates is not.
        assert row.get("policy/sampler_gap_max", 0) < 1e-4
        assert row["off_policy/stale_gap"] > 10 * row.get("policy/sampler_gap_mean", 0)
        assert row["sampling/aged_out"] == 0
        assert row["timing/compiled_programs"] == 0


def test_signal_sampling_accounts_for_every_completion(finished):
    rows = _steps(finished["signal"], "draws/offered")
    for row in rows:
        assert row["draws/offered"] - row["draws/refused"] == row["sampling/groups"]
        assert row["sampling/completions"] == 8 * row["sampling/groups"]
    assert 0 < rows[0]["draws/coverage"] < rows[-1]["draws/coverage"] <= 1


@pytest.mark.failure(30)
@pytest.mark.parametrize("after", [pytest.param(2, marks=pytest.mark.ci), 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_it_ends_bit_for_bit_the_same(finished, cache, tmp_path, variant, after):
    again = tmp_path / "again"
    arguments = _command(again, cache, variant)
    # The checkpoint before the last one has been written by then, at the least.
    runs.kill_at(arguments, after + 1)
    done = runs.run(arguments)
    assert "resuming after step" in done.stdout
    runs._assert_same_run(finished[variant], again)
