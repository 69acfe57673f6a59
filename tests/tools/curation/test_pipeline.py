"""Whole runs: duplicates, conflicts, contamination, levels, restarts, same bytes."""

import dataclasses
import html
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from rl.types import Problem
from rollout.vllm.supervisor import descendants
from tests.tools.browser import browser  # noqa: F401
from tools.curation.pipeline import curate
from tools.curation.plan import Near, Plan
from tools.curation.screen import Screen
from tools.curation.sources import Source
from tools.curation.text import similarity

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUTPUTS = ("problems.jsonl", "dropped.jsonl", "report.md", "report.html")
EVALUATION = {
    "exam/0": Problem(
        id="exam/0",
        answers=("6",),
        problem="A fair coin is tossed until two heads come up in a row. What is the"
        " expected number of tosses that this takes in the long run?",
    )
}
BASE = Plan(
    sources=(),
    evaluation=EVALUATION,
    screen=Screen(
        min_solve_rate=0.0,
        min_grading=4,
        max_disagreement=0.75,
        max_solve_rate=1.0,
        min_chars=16,
        max_chars=2500,
        max_answer_chars=120,
    ),
    near=Near(
        threshold=0.8,
        same_answer_threshold=0.6,
        conflict_threshold=0.9,
        contamination_threshold=0.8,
    ),
    conflicts="majority",
    evidence="preferred",
    min_evidence=0.25,
    readings={},
    levels="auto",
    answer_timeout=10.0,
    common_rows=0,
    workers=1,
)
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
    row("vote 1", "Which number is twice as large as the number thirty?", "60"),
    row("vote 2", "Which number is twice as large as the number thirty?", "60.0"),
    row("vote 3", "Which number is twice as large as the number thirty?", "30"),
    row("tied 1", "How many edges has the solid that was cut from wood?", "12"),
    row("tied 2", "How many edges has the solid that was cut from wood?", "18"),
    row("leaked", EVALUATION["exam/0"].problem.replace("expected", "average"), "6"),
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


def run(tmp_path, rows=ROWS, out="out", **changes):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    changes.setdefault("sources", (Source(path=str(path)),) if rows else ())
    plan = dataclasses.replace(BASE, **changes)
    summary = curate(plan, tmp_path / out)
    return summary, tmp_path / out


def read(path):
    return {r["id"]: r for r in map(json.loads, path.read_text().splitlines())}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(tmp_path_factory.mktemp("curated"))


def test_each_row_goes_where_it_should(finished):
    summary, out = finished
    kept, dropped = read(out / "problems.jsonl"), read(out / "dropped.jsonl")
    assert set(kept) == {"levelled", "vote 1", "boxed", "foreign", "scaled"}
    assert {name: r["reason"] for name, r in dropped.items()} == {
        "first": "exact_duplicate",
        "spaced": "exact_duplicate",
        "reworded": "near_duplicate",
        "other numbers": "near_duplicate",
        "vote 2": "exact_duplicate",
        "vote 3": "conflicting_answers, exact_duplicate",
        "tied 1": "conflicting_answers",
        "tied 2": "conflicting_answers, exact_duplicate",
        "leaked": "evaluation_near",
        "proof": "proof, no_answer",
        "unsound": "unverifiable_answer",
    }
    assert (summary["rows"], summary["kept"]) == (16, 5)


def test_the_levelled_copy_wins_and_scales_do_not_mix(finished):
    summary, out = finished
    kept = read(out / "problems.jsonl")
    assert summary["level_scale"] == "scale"
    assert (kept["levelled"]["level"], kept["levelled"]["level_source"]) == (2, "scale")
    assert kept["foreign"]["level"] is None
    assert kept["foreign"]["meta"]["other_level"] == {"level": 4, "scale": "x"}
    assert summary["levels"] == {"1": 1, "2": 1, "no level": 3}


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


def test_the_page_stands_alone(finished):
    page = (finished[1] / "report.html").read_text()
    assert "://" not in page
    assert "<script src" not in page and "$cards" not in page
    assert page.count("<svg") == 3
    assert "conflicting_answers" in page and "scale" in page


def test_the_page_shows_pairs_and_what_was_kept_and_repaired(finished):
    page = html.unescape((finished[1] / "report.html").read_text())
    kinds = dict(
        re.findall(
            r"<summary>(.*?) \(the first \d+\)</summary>(.*?)</details>", page, re.S
        )
    )
    for kind, row, other in (
        ("evaluation_near", "leaked", "exam/0"),
        ("near_duplicate", "reworded", "levelled"),
        ("conflicting_answers", "tied 2", "tied 1"),
        ("kept and repaired: answer_from_solution", "boxed", "boxed"),
    ):
        pair = rf'<div class="beside"><div><h4>{row}</h4>.*?</div><div><h4>{other}</h4>'
        assert re.search(pair, kinds[kind], re.S), kind
    assert "exam/0 (0.80)" in kinds["evaluation_near"]
    assert EVALUATION["exam/0"].problem in kinds["evaluation_near"]
    assert ">Gold: 13<" in kinds["kept and repaired: answer_from_solution"]
    assert "<h4>vote 1</h4>" in kinds["kept of rows"]


def test_it_reads_at_400_pixels(finished, browser):  # noqa: F811
    browser.set_window_size(400, 900)
    try:
        browser.get((finished[1] / "report.html").as_uri())
        browser.execute_script(
            "document.querySelectorAll('details').forEach(d => d.open = true)"
        )
        width = browser.execute_script("return innerWidth")
        sideways = "return document.documentElement.scrollWidth"
        assert browser.execute_script(sideways) <= width
        (pair,) = [
            found
            for found in browser.find_elements("css selector", ".beside")
            if found.text.startswith("leaked")
        ]
        tops = [c.location["y"] for c in pair.find_elements("xpath", "./div")]
        assert len(tops) == 2 and tops[0] < tops[1]  # below each other
    finally:
        browser.set_window_size(1280, 1600)


def test_options_change_what_stays(tmp_path):
    rows = [r for r in ROWS if r["id"][:4] in ("vote", "forei"[:4], "scal")]
    _, out = run(tmp_path, rows, conflicts="drop", levels="x")
    kept = read(out / "problems.jsonl")
    assert {name: r["level"] for name, r in kept.items()} == {
        "foreign": 4,
        "scaled": None,
    }
    dropped = read(out / "dropped.jsonl")
    assert dropped["vote 1"]["reason"] == "conflicting_answers"


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_a_copy_of_a_rewording_that_disagrees_costs_all(tmp_path, order):
    # compared with the first alone, "copy" would stay beside it with another answer
    reworded = (
        LONG.format(36)
        .replace("exactly", "and no other number")
        .replace("Find the", "Compute the")
    )
    given = [
        row("one", LONG.format(36), "9"),
        row("reworded", reworded, "9"),
        row("copy", reworded, "8"),
    ]
    assert 0.6 < similarity(given[0]["problem"], reworded) < 0.8
    summary, out = run(tmp_path, [given[n] for n in order], conflicts="drop")
    assert summary["kept"] == 0
    dropped = read(out / "dropped.jsonl")
    assert all("conflicting_answers" in d["reason"] for d in dropped.values())


def test_a_finished_run_is_not_repeated_and_a_changed_one_is(finished, tmp_path):
    summary, out = finished
    before = {name: (out / name).stat().st_mtime_ns for name in OUTPUTS}
    again, _ = run(out.parent)
    assert again == summary
    assert before == {name: (out / name).stat().st_mtime_ns for name in OUTPUTS}
    changed, _ = run(out.parent, out="other", conflicts="drop")
    assert changed["fingerprint"] != summary["fingerprint"]


def many_rows(count):
    return [
        row(f"r{i}", f"What is the remainder of {i * 37 % 911} squared divided by {i}?")
        for i in range(2, count)
    ]


def command(tmp_path, out):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import pathlib\n"
        "from tests.tools.curation import test_pipeline as t\n"
        "from tools.curation import pipeline\n"
        "pipeline.CHUNK = 32\n"
        "if __name__ == '__main__':\n"
        "    t.run(pathlib.Path(sys.argv[2]), t.many_rows(500), out=sys.argv[3])\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    return [sys.executable, str(script), str(ROOT), str(tmp_path), out]


@pytest.mark.failure(31)
def test_killed_in_the_middle_and_started_again_gives_the_same_bytes(tmp_path):
    subprocess.run(command(tmp_path, "whole"), check=True, cwd=ROOT)
    process = subprocess.Popen(command(tmp_path, "killed"), cwd=ROOT)
    work = tmp_path / "killed" / ".work"
    deadline = time.monotonic() + 120
    while not _screened(work):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = descendants(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # A screening worker and the process that ends it with its parent.
    assert len(workers) >= 2
    deadline = time.monotonic() + 20
    while left := [pid for pid in workers if _runs(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert not any((tmp_path / "killed" / name).exists() for name in OUTPUTS)
    done = _screened(work)
    assert 0 < done < 498
    # Beside it, one in which a machine that stopped has left a line of zeros.
    shutil.copytree(tmp_path / "killed", tmp_path / "stopped")
    (rows,) = (tmp_path / "stopped" / ".work").glob("*.jsonl")
    _, newline, rest = rows.read_bytes().partition(b"\n")
    rows.write_bytes(bytes(100) + newline + rest)
    for out in ("killed", "stopped"):
        subprocess.run(command(tmp_path, out), check=True, cwd=ROOT)
        for name in OUTPUTS:
            whole = (tmp_path / "whole" / name).read_bytes()
            assert (tmp_path / out / name).read_bytes() == whole
        assert not (tmp_path / out / ".work").exists()


def _runs(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def _screened(work: pathlib.Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in work.glob("*.jsonl"))
