"""The command over a real model, and what completions say of a problem."""

import contextlib
import io
import json

import pytest

from rl.files import replace_rows
from rl.types import Problem
from tests.rl.examples import make_scored
from tests.tools import tiny
from tools.curation.row import Row
from tools.curation.screen import screen
from tools.grade import _parse, main
from tools.grade import grade as describe


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
    status, said = grade(*command)
    assert status == 0, said
    again = (tmp_path / "out/completions.jsonl").read_bytes()
    assert sorted(again.splitlines()) == sorted(before.splitlines())
    # Judged by another rule without a sampler: an answer is put where there was none.
    right = [json.loads(line) for line in before.splitlines()]
    for row in right[:12]:
        row["completion"] = "\\boxed{-1}"
    replace_rows(tmp_path / "out/completions.jsonl", right)
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


PROBLEM = Problem(id="a", problem="?", answers=("2",))
GRADE = {
    "samples": 4, "correct": 1, "unparsable": 1, "truncated": 1, "majority": "3",
    "agreement": 0.5, "against_gold": True,
}  # fmt: skip


def test_a_majority_against_the_gold_is_told():
    ends = ["stop", "length", "stop", "stop"]
    scored = make_scored(PROBLEM, ["3", None, "3", "2"], ends=ends)
    assert describe(scored, ["3", None, "3", "2"]) == GRADE


def test_where_nobody_answers_there_is_no_majority():
    found = describe(make_scored(PROBLEM, [None, None]), [None, None])
    assert (found["majority"], found["agreement"]) == (None, 0.0)
    assert found["unparsable"] == found["samples"] == 2 and not found["against_gold"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agreement": 0.75}, {"majority_against_gold"}),
        ({"agreement": 0.5}, set()),
        ({"agreement": 1.0, "against_gold": False}, set()),
        ({"agreement": 1.0, "samples": 3}, set()),
        ({"unparsable": 4, "agreement": 0.0, "against_gold": False},
         {"majority_against_gold"}),
    ],
)  # fmt: skip
def test_curation_reads_what_a_grading_says(changes, reason):
    graded = {"graded": GRADE | {"unparsable": 0} | changes}
    ask = "What is the sum of one and one?"
    row = Row(id="a", problem=ask, answers=("2",), meta=graded)
    assert set(screen(row).reasons) == reason
