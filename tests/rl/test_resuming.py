"""Runs with carried groups, signal sampling and stages: their metrics, and restarts."""

import json
from unittest import mock

import pytest

from rl.run import Run
from tests.other_processes import dotted, make_config
from tests.rl import test_train as runs

COMMON = {**runs.ABLE, "steps": 6, "checkpoint.every_steps": 1}
CHANGES = {
    "carry": {"dynamic_sampling": dict(carry=True, max_age=1), "rollout.slots": 64},
    "signal": {"sampling": dict(policy="signal", half_life=3.0)},
    "stages": {},
}


@pytest.fixture(scope="module")
def command(tmp_path_factory, cache):
    """Makes the command of a run by the name of its changes."""
    path = tmp_path_factory.mktemp("config") / "staged.py"
    make_config(path, f"c.curriculum.stages = {runs.STAGES!r}")

    def make(workdir, name, **more):
        config = path if name == "stages" else "configs/quickstart.py"
        changes = COMMON | dotted(CHANGES[name]) | more
        return runs.command(workdir, cache, config=config, **changes)

    return make


@pytest.fixture(scope="module")
def finished(tmp_path_factory, command):
    """Runs to their ends, each when it is first asked for."""
    ended = {}

    def run(name):
        if name not in ended:
            workdir = tmp_path_factory.mktemp(name) / "work"
            ended[name] = workdir, runs.run(command(workdir, name))
        return ended[name]

    return run


def steps(workdir):
    rows = runs._rows(workdir / "metrics.jsonl")
    return [row for row in rows if "sampling/groups" in row]


@pytest.mark.slow
def test_tokens_of_two_versions_are_told_apart(finished):
    rows = steps(finished("carry")[0])
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
def test_signal_sampling_accounts_for_every_completion(finished):
    rows = steps(finished("signal")[0])
    assert len(rows) == 6
    for row in rows:
        assert row["draws/offered"] - row["draws/refused"] == row["sampling/groups"]
        assert row["sampling/completions"] == 8 * row["sampling/groups"]
    assert 0 < rows[0]["draws/coverage"] < rows[-1]["draws/coverage"] <= 1


@pytest.mark.slow
def test_stages_follow_one_another_with_their_settings(finished):
    workdir, done = finished("stages")
    rows = steps(workdir)
    assert [row["curriculum/stage"] for row in rows] == [1, 1, 1, 2, 2, 2]
    assert "curriculum: step 4 begins stage 'all'" in done.stdout
    # a cut at 28 tokens, and half the rate, in the first stage only
    assert max(row["length/all_max"] for row in rows[:3]) <= 28
    rates = [row["schedule/learning_rate"] for row in rows]
    assert rates[3] > 1.9 * rates[2]
    # The update takes log-probabilities where they were drawn, at 0.7 and then 0.9.
    # (Steps that took groups over have no such token in their first update.)
    fresh = [row for row in rows if row["sampling/carried"] == 0]
    assert {row["curriculum/stage"] for row in fresh} == {1, 2}
    assert max(row["policy/sampler_gap_mean"] for row in fresh) < 1e-4
    # Who serves it draws as it was drawn in the end.
    said = json.loads((workdir / "hf" / "generation_config.json").read_text())
    assert said["temperature"] == 0.9


@pytest.mark.slow
@pytest.mark.failure(30)
@pytest.mark.parametrize(
    ("name", "after"),
    [
        pytest.param("carry", 2, marks=pytest.mark.ci),
        ("carry", 4),
        pytest.param("signal", 2, marks=pytest.mark.ci),
        ("stages", 2),
        pytest.param("stages", 3, marks=pytest.mark.ci),
    ],
)
def test_killed_it_ends_bit_for_bit_the_same(finished, command, tmp_path, name, after):
    workdir, _ = finished(name)
    again = tmp_path / "again"
    arguments = command(again, name)
    # The checkpoint before the last one has been written by then, at the least.
    runs.kill_at(arguments, after + 1)
    done = runs.run(arguments)
    assert "resuming after step" in done.stdout
    runs._assert_same_run(workdir, again)


def test_a_checkpoint_of_another_version_is_one_line(tmp_path):
    run = mock.MagicMock(workdir=tmp_path)
    run.engine.restore.return_value = 3, {"rollouts": {}}
    run.collector.restore.side_effect = KeyError("hashes")
    with pytest.raises(ValueError, match=r"another version .* step 3 \('hashes'\)"):
        Run.restore(run)
