"""The command over a real model and the embedded sampler, and without a model."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.tools import tiny
from tools.grade import _parse, main

ROOT = pathlib.Path(__file__).resolve().parents[2]


def grade(*arguments):
    """The exit status, and what was said on stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        return main(list(map(str, arguments))), said.getvalue()


def test_a_model_grades_and_the_same_command_does_nothing_again(tmp_path):
    model = tiny.make_model(tmp_path / "model")
    sums = tiny.make_sums(tmp_path / "sums.jsonl", 6)
    command = [
        "--model", model, "--input", sums, "--out", tmp_path / "out", "--samples", 4,
        "--template", "none", "--max_tokens", 6, "--slots", 8, "--levels", "percentile",
        "--level_source", "tiny",
    ]  # fmt: skip
    status, said = grade(*command)
    assert status == 0, said
    rows = [json.loads(x) for x in (tmp_path / "out/graded.jsonl").open()]
    assert [r["id"] for r in rows] == [f"s{i}" for i in range(6)]
    # a random model never finds a box, and what is never solved is hardest
    assert {r["solve_rate"] for r in rows} == {0.0}
    assert {(r["level"], r["level_source"]) for r in rows} == {(5, "tiny")}
    assert rows[0]["graded"] == {
        "samples": 4, "correct": 0, "unparsable": 4, "majority": None,
        "agreement": 0.0, "against_gold": False,
        "truncated": rows[0]["graded"]["truncated"],
    }  # fmt: skip
    before = (tmp_path / "out/completions.jsonl").read_bytes()
    # A kill in the middle of the last row: it and what it was is drawn again.
    (tmp_path / "out/completions.jsonl").write_bytes(before[:-30])
    again = subprocess.run(
        [sys.executable, "-m", "tools.grade", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"},
    )
    assert again.returncode == 0, again.stderr
    assert sorted((tmp_path / "out/completions.jsonl").read_bytes().splitlines()) == (
        sorted(before.splitlines())
    )
    # Judged by another rule without a sampler: an answer is put where there was none.
    right = [json.loads(line) for line in before.splitlines()]
    for row in right[:12]:
        row["completion"] = "\\boxed{-1}"
    (tmp_path / "out/completions.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in right)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tools.evaluation.sampler.open_sampler", None)
        status, said = grade(*command)
    assert status == 0, said
    rows = [json.loads(x) for x in (tmp_path / "out/graded.jsonl").open()]
    told = [r["graded"] for r in rows if r["graded"]["majority"]]
    assert told and all(g["majority"] == "-1" and g["against_gold"] for g in told)
    status, said = grade(*command, "--temperature", 0.5)
    assert status == 2
    assert "drawing.temperature=1.0, not 0.5" in said and said.count("\n") == 1
    # Fewer tokens for a long prompt would be a lower solve rate.
    new = ["--out", tmp_path / "new", "--context", 12, "--max_tokens", 11]
    status, said = grade(*command, *new)
    assert status == 2 and "max_tokens=11 and a prompt of" in said
    assert "exceed context=12; raise --context or lower --max_tokens" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.failure(135)
def test_the_scale_of_levels_has_the_whole_name_of_the_model():
    given = ["--input", "a", "--out", "b", "--levels", "percentile", "--model"]
    for model in ("Qwen/Qwen2.5-Math-7B", "models/Qwen2.5-Math-7B/"):
        assert _parse([*given, model]).level_source == "grade:Qwen2.5-Math-7B"


@pytest.mark.failure(33)
def test_bad_input_is_one_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "problem": 3, "answer": "4"}\n')
    status, said = grade("--model", "m", "--input", path, "--out", tmp_path / "no")
    assert status == 2 and "rows.jsonl:1: 'problem' must be text, got 3" in said
    assert not (tmp_path / "no").exists()
