"""Whole runs: duplicates, conflicts, contamination, levels, restarts, same bytes."""

import html
import json
import re
from unittest import mock

import pytest

from rl.files import replace_rows
from tools.curation import pipeline
from tools.curation.pipeline import _evaluation, curate
from tools.curation.text import similarity

EXAM = {
    "id": "0",
    "answer": "6",
    "problem": "A fair coin is tossed until two heads come up in a row. What is the"
    " expected number of tosses that this takes in the long run?",
}
BASE = dict(evaluation=(), data_dir="", readings="", workers=1)
BASE |= dict(evidence="preferred", min_evidence=0.25)
LONG = (
    "Find the number of ordered pairs of positive whole numbers, neither of them larger"
    " than the other one by more than a hundred, whose product is {} exactly."
)


def row(name, problem, answer="7", level=None, **others):
    return {"id": name, "problem": problem, "answer": answer, "level": level} | others


ROWS = [
    row("first", LONG.format(36), "9"),
    row("levelled", LONG.format(36), "9", level=2, source="scale"),
    row("spaced", LONG.format(" 36 ").replace("Find", "Find "), "9"),
    row("reworded", LONG.format(36).replace("exactly", "precisely"), "9.0"),
    row("other numbers", LONG.format(48), "10", level=3, source="scale"),
    row("twice 1", "Which number is twice as large as the number thirty?", "60"),
    row("twice 2", "Which number is twice as large as the number thirty?", "60.0"),
    row("tied 1", "How many edges has the solid that was cut from wood?", "12"),
    row("tied 2", "How many edges has the solid that was cut from wood?", "18"),
    row("leaked", EXAM["problem"].replace("expected", "average"), "6"),
    row("boxed", "What is the sum of four and of nine?", None, solution=r"\boxed{013}"),
    row("proof", "Prove that the sum of two even numbers is even.", None),
    row("unsound", "What is the set of all of these numbers?", r"\frac{1}{"),
    row(
        "foreign", "What is the last digit of seven to the ninth?", level=4, source="x"
    ),
    row(
        "scaled",
        "What is the first digit of two to the tenth?",
        level=1,
        source="scale",
    ),
]


class InThisProcess:
    """Screens rows where the test runs, as `Workers` does in processes of its own."""

    def __init__(self, *_, **__): ...

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def map(self, jobs, on_done):
        return [[screen(row) for row in rows] for (screen,), rows in jobs]


def run(tmp_path, rows=ROWS, out="out", workers=InThisProcess, **changes):
    path = tmp_path / "rows.jsonl"
    replace_rows(path, rows)
    replace_rows(tmp_path / "exam.jsonl", [EXAM])
    changes = {"evaluation": [str(tmp_path / "exam.jsonl")]} | changes
    changes.setdefault("sources", ({"path": str(path)},) if rows else ())
    with mock.patch.object(pipeline, "Workers", workers):
        summary = curate(tmp_path / out, **BASE | changes)
    return summary, tmp_path / out


def read(path):
    return {r["id"]: r for r in map(json.loads, path.read_text().splitlines())}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("curated"))


def test_each_row_goes_where_it_should(finished):
    summary, out = finished
    kept, dropped = read(out / "problems.jsonl"), read(out / "dropped.jsonl")
    assert set(kept) == {"levelled", "twice 1", "boxed", "foreign", "scaled"}
    assert {name: r["reason"] for name, r in dropped.items()} == {
        "first": "exact_duplicate",
        "spaced": "exact_duplicate",
        "reworded": "near_duplicate",
        "other numbers": "near_duplicate",
        "twice 2": "exact_duplicate",
        "tied 1": "conflicting_answers",
        "tied 2": "conflicting_answers, exact_duplicate",
        "leaked": "evaluation_near",
        "proof": "proof, no_answer",
        "unsound": "unverifiable_answer",
    }
    assert (summary["rows"], summary["kept"]) == (15, 5)


def test_the_levelled_copy_wins_and_scales_do_not_mix(finished):
    summary, out = finished
    kept = read(out / "problems.jsonl")
    assert summary["level_scale"] == "scale"
    assert (kept["levelled"]["level"], kept["levelled"]["level_source"]) == (2, "scale")
    assert kept["foreign"]["level"] is None
    assert summary["levels"] == {"1": 1, "2": 1, "no level": 3}
    assert "| no level | 3 |" in (out / "report.md").read_text()


def test_the_answer_is_found_in_the_box(finished):
    boxed = read(finished[1] / "problems.jsonl")["boxed"]
    assert (boxed["answer"], boxed["answers"]) == ("13", ["13"])
    assert "answer_from_solution" in boxed["meta"]["repairs"]


def test_the_funnel_adds_up_and_evidence_names_the_other_row(finished):
    summary, out = finished
    for step, after in zip(summary["funnel"], summary["funnel"][1:], strict=False):
        assert step["out"] == step["in"] - step["dropped"] == after["in"]
    assert summary["funnel"][-1]["out"] == summary["kept"]
    dropped = read(out / "dropped.jsonl")
    assert dropped["first"]["details"]["exact_duplicate"] == "of levelled"
    assert "exam/0" in dropped["leaked"]["details"]["evaluation_near"]


def test_the_page_shows_dropped_and_kept_rows(finished):
    page = html.unescape((finished[1] / "report.html").read_text())
    pattern = r"<summary>(.*?) \(the first \d+\)</summary>(.*?)</details>"
    kinds = dict(re.findall(pattern, page, re.S))
    for kind, row, other in (
        ("evaluation_near", "leaked", "exam/0 (0.80)"),
        ("near_duplicate", "reworded", "of levelled"),
        ("conflicting_answers", "tied 2", "12 / 18"),
    ):
        assert f"<pre>{row}: " in kinds[kind] and other in kinds[kind], kind
    assert "<pre>twice 1: " in kinds["kept from rows"]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_a_copy_of_a_rewording_that_disagrees_costs_all(tmp_path, order):
    # if compared with the first alone, "copy" would be kept with another answer
    other = LONG.replace("exactly", "and no other number")
    reworded = other.replace("Find the", "Compute the").format(36)
    given = [row("one", LONG.format(36), "9")]
    given += [row("reworded", reworded, "9"), row("copy", reworded, "8")]
    assert 0.6 < similarity(given[0]["problem"], reworded) < 0.8
    summary, out = run(tmp_path, [given[n] for n in order])
    assert summary["kept"] == 0
    dropped = read(out / "dropped.jsonl")
    assert all("conflicting_answers" in d["reason"] for d in dropped.values())


@pytest.mark.failure(151)
def test_two_evaluation_sets_may_have_one_file_name(tmp_path):
    files = [tmp_path / name / "test.jsonl" for name in "ab"]
    for file in files:
        file.parent.mkdir()
        row = {"id": "0", "problem": f"1+1={file.parent.name}", "answer": "2"}
        replace_rows(file, [row])
    found = _evaluation([*map(str, files)], "")
    problems = {id: p.problem for id, p in found.items()}
    assert problems == {"test/0": "1+1=a", f"{files[1]}/0": "1+1=b"}


@pytest.mark.failure(93)
def test_an_input_is_not_replaced(tmp_path):
    path = tmp_path / "problems.jsonl"
    replace_rows(path, ROWS[:1])
    sources = ({"path": str(path)},)
    with pytest.raises(ValueError, match="problems.jsonl: is an input, which would"):
        curate(tmp_path, sources=sources, **BASE)
    assert [*tmp_path.iterdir()] == [path]


def test_another_run_writes_the_same_bytes(finished):
    summary, out = finished
    again, other = run(out.parent, out="other", workers=pipeline.Workers)
    assert again == summary
    for name in ("problems.jsonl", "dropped.jsonl", "report.md", "report.html"):
        assert (out / name).read_bytes() == (other / name).read_bytes()
