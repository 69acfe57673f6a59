"""A run with signal sampling: what it reports, and that it resumes."""

import json

import pytest

from tests.rl import test_train as runs

DRAWS = {
    **runs.ABLE,
    "steps": 6,
    "sampling.policy": "signal",
    "sampling.half_life": 3.0,
    "checkpoint.every_steps": 1,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    workdir = tmp_path_factory.mktemp("draws") / "work"
    return workdir, runs.run(runs.command(workdir, cache, **DRAWS))


def _steps(workdir):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    return [row for row in rows if "draws/offered" in row]


@pytest.mark.slow
def test_it_accounts_for_every_completion(finished):
    rows = _steps(finished[0])
    assert len(rows) == 6
    for row in rows:
        assert row["draws/offered"] - row["draws/refused"] == row["sampling/groups"]
        assert row["sampling/completions"] == 8 * row["sampling/groups"]
    assert 0 < rows[0]["draws/coverage"] < rows[-1]["draws/coverage"] <= 1


@pytest.mark.slow
@pytest.mark.failure(30)
@pytest.mark.parametrize("after", [pytest.param(2, marks=pytest.mark.ci), 4])
def test_killed_it_ends_bit_for_bit_the_same(finished, cache, tmp_path, after):
    workdir, _ = finished
    again = tmp_path / "again"
    arguments = runs.command(again, cache, **DRAWS)
    # The checkpoint before the last one has been written by then, at the least.
    runs.kill_at(arguments, after + 1)
    done = runs.run(arguments)
    assert "resuming after step" in done.stdout
    runs._assert_same_run(workdir, again)
