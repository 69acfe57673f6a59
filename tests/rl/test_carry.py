"""A run whose steps wait for no group that they can do without, and a restart of it."""

import json

import pytest

from tests.rl import test_train as runs

CARRY = {
    **runs.ABLE,
    "steps": 6,
    "dynamic_sampling.carry": True,
    "dynamic_sampling.max_age": 1,
    "rollout.slots": 64,
    "checkpoint.every_steps": 1,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    workdir = tmp_path_factory.mktemp("carry") / "work"
    return workdir, runs.run(runs.command(workdir, cache, **CARRY))


@pytest.mark.slow
def test_tokens_of_two_versions_are_told_apart(finished):
    rows = [json.loads(line) for line in (finished[0] / "metrics.jsonl").open()]
    rows = [row for row in rows if "sampling/partial" in row]
    assert len(rows) == 6 and rows[0]["sampling/partial"] == 0
    for before, row in zip(rows, rows[1:], strict=False):
        assert 0 < row["sampling/partial"] <= before["sampling/unfinished"]
        assert 1 <= row["off_policy/staleness_max"] <= 2
        # The sampler is the trainer; what it drew before the last updates is not.
        assert row.get("policy/sampler_gap_max", 0) < 1e-4
        assert row["off_policy/stale_gap"] > 10 * row.get("policy/sampler_gap_mean", 0)
        assert row["sampling/aged_out"] == 0
        assert row["timing/compiled_programs"] == 0


@pytest.mark.slow
@pytest.mark.failure(30)
@pytest.mark.parametrize("after", [pytest.param(2, marks=pytest.mark.ci), 4])
def test_killed_it_ends_bit_for_bit_the_same(finished, cache, tmp_path, after):
    workdir, _ = finished
    again = tmp_path / "again"
    arguments = runs.command(again, cache, **CARRY)
    runs.kill_at(arguments, after + 1)
    done = runs.run(arguments)
    assert "resuming after step" in done.stdout
    runs._assert_same_run(workdir, again)
