"""A staged run: stages change settings, and a restart across a boundary is exact."""

import json

import pytest

from tests.rl import test_train as runs

STEPS = {**runs.ABLE, "steps": 6}
STAGES = (
    {"name": "short", "levels": {"3": 1.0}, "steps": 3, "group_size": 4,
     "max_response_tokens": 28, "learning_rate": 5e-5, "temperature": 0.7},
    {"name": "all", "levels": {"2": 0.25, "4": 0.5, "5": 0.25}, "eps_high": 0.3,
     "temperature": 0.9},
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "staged.py"
    path.write_text(
        "from configs import quickstart\n"
        "def get_config():\n"
        "    c = quickstart.get_config()\n"
        f"    c.curriculum.stages = {STAGES!r}\n"
        "    return c\n"
    )
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache, config):
    workdir = tmp_path_factory.mktemp("staged") / "work"
    return workdir, runs.run(runs.command(workdir, cache, config=config, **STEPS))


def steps(workdir):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    return [row for row in rows if "curriculum/stage" in row]


@pytest.mark.slow
def test_stages_follow_one_another_with_their_settings(finished):
    workdir, done = finished
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
@pytest.mark.parametrize("after", [2, pytest.param(3, marks=pytest.mark.ci), 4])
def test_killed_around_the_boundary_it_ends_bit_for_bit_the_same(
    finished, cache, config, tmp_path, after
):
    workdir, _ = finished
    again = tmp_path / "again"
    every = STEPS | {"checkpoint.every_steps": 1}
    arguments = runs.command(again, cache, config=config, **every)
    # The checkpoint before the last one has been written by then, at the least.
    runs.kill_at(arguments, after + 1)
    done = runs.run(arguments)
    assert "resuming after step" in done.stdout
    runs._assert_same_run(workdir, again)


def test_a_stage_that_cannot_work_is_one_line(cache, tmp_path, config):
    bad = (
        (
            {"rollout.max_response_tokens": 20},
            "stages[0].max_response_tokens=28: must be at most",
        ),
        ({"data.train_args.held_out": 5050}, "no problem"),
        (
            {"rollout.max_prompt_tokens": 5, "data.eval": ""},
            "prompts exceed config.rollout.max_prompt_tokens=5",
        ),
    )
    commands = [
        runs.command(tmp_path / "w", cache, config=config, **changes)
        for changes, _ in bad
    ]
    for done, (_, message) in zip(runs.starts(tmp_path, commands), bad, strict=True):
        assert done.returncode == 1 and message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "w").exists()
