"""The command: overrides, one-line errors, nothing half-written."""

import os

import pytest

from configs import compass_thinker_7b
from configs.base import from_config
from rl.files import replace_rows
from rl.groups.curriculum import Curriculum, fill_gaps
from rl.problems.reading import load_problems
from tests import forked
from tests.other_processes import ROOT, make_config, python

ENVIRONMENT = {"SHARED_DATA": "/nowhere"} | os.environ


def curate(*arguments):
    return python("-m", "tools.curate", *arguments, env=ENVIRONMENT)


@pytest.fixture
def config(tmp_path):
    lines = "c.evaluation = ()", "c.workers = 1"
    return make_config(tmp_path / "config.py", *lines, of="curate")


@pytest.mark.failure(195)
def test_the_reason_is_named_if_no_row_is_kept(tmp_path, config):
    rows = [{"problem": "What is the sum of 3 and 5?", "answer": "8"}]
    replace_rows(tmp_path / "a.jsonl", rows)
    given = (f"--config={config}", f"--input={tmp_path}/a.jsonl", "--out", tmp_path)
    result = curate(*given, "--config.evidence=required")
    assert (
        "WARNING: no row is kept; the main reason is no_evidence (1 of 1 rows); set"
        " config.evidence='preferred'"
    ) in result.stdout


@pytest.mark.failure(124)
def test_a_set_that_is_lost_for_one_reason_is_told(tmp_path, config):
    asks = [f"Find ![the number](a{i}.png), and add {i} to it." for i in range(12)]
    good = [f"What is the sum of {i} and {i * i + 3}?" for i in range(12)]
    for name, problems in ("lost", asks), ("good", good + asks[:1]):
        path = tmp_path / f"{name}.jsonl"
        rows = [{"problem": p, "answer": str(n)} for n, p in enumerate(problems)]
        replace_rows(path, rows)
    inputs = [f"--input={tmp_path / name}.jsonl" for name in ("lost", "good")]
    result = curate(f"--config={config}", *inputs, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    warnings = [line for line in result.stdout.splitlines() if "WARNING" in line]
    assert warnings == [
        "WARNING: lost: not_text drops 12 of 12 rows; check its fields"
        " (config.sources or --fields)"
    ]


def test_the_stages_of_the_7b_recipe_start_on_the_output(tmp_path, config):
    things = "apples pears plums nuts figs dates limes leeks beans peas".split()
    rows = []
    for n, thing in enumerate(things):
        ask = f"There are {n + 3} {thing}. How many {thing} are in {n} boxes?"
        row = {"problem": ask, "answer": str(n * (n + 3))}
        rows.append(row | {"llama8b_solve_rate": 1 - n / 20})
    path, out = tmp_path / "big_math.jsonl", tmp_path / "out"
    replace_rows(path, rows)
    flags = f"--config={config}", "--config.evidence=required"
    result = curate(*flags, "--input", path, "--out", out)
    assert result.returncode == 0, result.stderr
    problems = load_problems(str(out / "problems.jsonl"), key="config.data.train")
    assert {p.level for p in problems} == {1, 2, 3, 4, 5}
    config = from_config(compass_thinker_7b.get_config())
    stages, gaps = fill_gaps(config.curriculum.stages, problems)
    assert gaps == []
    how = {"sampling": config.sampling, "on_message": str}
    curriculum = Curriculum(stages, problems, seed=0, **how)
    assert curriculum.begin(0).name == "warm-up"
    drawn = curriculum.draw(10, size=8, seed=0)
    assert {d.problem.level for d in drawn} == {1, 2, 3}


def test_an_unknown_key_of_the_default_config_is_one_line():
    done = curate("--config.nope=3")
    assert done.returncode == 1
    assert done.stderr == "error: config.nope: unknown key 'nope'\n"


@pytest.mark.failure(33)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, config):
    good = {"problem": "What is one more than six?", "answer": "7"}
    replace_rows(tmp_path / "good.jsonl", [good])
    replace_rows(tmp_path / "bad.jsonl", [good | {"answer": 7}, {"question": "x"}])
    rows = [{"id": str(i), "problem": f"{i}+1", "answer": "1"} for i in range(30)]
    replace_rows(tmp_path / "aime2024.jsonl", rows)
    # What is wrong is the last argument.
    bad = {
        # The real problems would stay in the training set.
        "--config.evaluation=('aime2024',)": "aime2024.jsonl: differs from the",
        "--config.workers=0": "config.workers=0: must be at least 1",
        "--config.min_evidence=1.5": "config.min_evidence=1.5: must lie in",
        "--config.evidence=x": "evidence='x': must be one of required, preferred",
        "--input=none.jsonl": "none.jsonl: no such file",
        f"--input={tmp_path}/bad.jsonl": "bad.jsonl:2: no field 'problem' (columns: q",
    }
    given = [f"--config={config}", f"--out={tmp_path / 'out'}"]
    given += [f"--input={tmp_path}/good.jsonl", f"--config.data_dir={tmp_path}"]
    commands = [[*given, argument] for argument in bad]
    how = dict(needs=("tools.curation.pipeline", "rl.files"), cwd=ROOT, env=ENVIRONMENT)
    ends = forked.starts(tmp_path, "tools.curate", commands, **how)
    for result, message in zip(ends, bad.values(), strict=True):
        assert result.returncode == 2, result.args
        # It may follow a progress bar.
        assert result.stderr.count("error: ") == 1
        said = result.stderr.rpartition("error: ")[2].splitlines()[0]
        assert message in said
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()
