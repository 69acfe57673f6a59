"""A run with signal sampling: what it reports, and that it resumes."""

import json
import shutil

import pytest

from rl.workdir.proof import LOOP
from tests.rl import test_train as runs
from tools.grade import main as grade

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
def test_a_grading_takes_the_rates_that_the_run_has_found(finished, tmp_path, capsys):
    workdir, _ = finished
    config = tmp_path / "as_run.py"
    config.write_text(
        "import json\n"
        "from configs.quickstart import get_config as base\n"
        "def get_config():\n"
        "    config = base()\n"
        f"    config.update(json.load(open({str(workdir / 'config.json')!r})))\n"
        "    return config\n"
    )
    asked = ["--config", str(config), "--from_run", str(workdir)]
    out = tmp_path / "out"
    assert grade([*asked, "--out", str(out), "--levels", "percentile"]) == 0
    rows = [json.loads(line) for line in (out / "graded.jsonl").open()]
    seen = [row for row in rows if row["solve_rate"] is not None]
    last = _steps(workdir)[-1]
    assert len(seen) == round(last["draws/coverage"] * len(rows)) > 0
    assert len({row["solve_rate"] for row in seen}) > 3
    assert {row["level"] for row in seen} >= {1, 5}
    assert {row["level"] for row in rows if row["solve_rate"] is None} == {None}
    assert seen[0]["solve_rate_of"] == f"{workdir} after 6 steps"
    damaged = tmp_path / "damaged"
    shutil.copytree(workdir, damaged)
    (damaged / "checkpoints" / "6" / LOOP).write_text("{")
    asked[-1] = str(damaged)
    assert grade([*asked, "--out", str(out), "--levels", "percentile"]) == 0
    assert "an older checkpoint is taken" in capsys.readouterr().err
    rows = [json.loads(line) for line in (out / "graded.jsonl").open()]
    told = {row["solve_rate_of"] for row in rows if row["solve_rate"] is not None}
    assert told == {f"{damaged} after 5 steps"}
    # Problems in another order have other places.
    other = "    config.data.train_args.seed = 1\n    return"
    config.write_text(config.read_text().replace("    return", other))
    assert grade([*asked, "--out", str(tmp_path / "other")]) == 2
    assert "its run trains on other problems than" in capsys.readouterr().err


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
