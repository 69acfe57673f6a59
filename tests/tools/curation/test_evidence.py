"""Evidence: what the columns of public sets say, and what becomes of rows without."""

import json

import pytest

from tests.tools.curation.test_formats import big_math, guru, skywork
from tests.tools.curation.test_pipeline import read, row, run
from tools.curation.evidence import Evidence, load_readings, read_evidence
from tools.curation.sources import Source
from tools.curation.sources import read as read_rows

SEVEN = [r"so it is \boxed{7}.", r"\boxed{14/2}", r"\boxed{8}"]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (big_math(6, "?", "7"), "solve_rate Llama-3.1-8B 6/64"),
        (guru(6, "?", "7"),
         "solve_rate Qwen2.5-7B 1/16, solve_rate Qwen3-30B-A3B 6/16"),
        (skywork(6, "?", "7"),  # which counts failures
         "solve_rate DeepSeek-R1-Distill-Qwen-1.5B 0/16,"
         " solve_rate DeepSeek-R1-Distill-Qwen-7B 7/16,"
         " solve_rate DeepSeek-R1-Distill-Qwen-32B 14/16"),
        ({"difficulty": "3/8"}, "solve_rate DeepSeek-R1-Distill-Qwen-7B 3/8"),
        ({"correctness_math_verify": [True, False, True]},
         "verified_solutions DeepSeek-R1 2/3"),
        ({f"r1_solution_{n + 1}": text for n, text in enumerate(SEVEN)},
         "verified_solutions DeepSeek-R1 2/3"),
        ({"graded": {"correct": 3, "samples": 8}, "solve_rate": 0.375},
         "graded tools.grade 3/8"),
        ({"solve_rate": 0.5}, "solve_rate set 8/16"),
        ({"difficulty": 6.5, "solve_rate": None, "llama8b_solve_rate": 2}, ""),
        ({"difficulty": "hard", "correctness_math_verify": "yes"}, ""),
        ({"difficulty": "9/8"}, ""),
        ({"difficulty": "²/8"}, ""),
    ],
)  # fmt: skip
def test_columns_of_public_sets(record, expected):
    found = read_evidence(record, ["7"], "set")
    shown = (f"{one.kind} {one.by} {one.correct}/{one.samples}" for one in found)
    assert ", ".join(shown) == expected


@pytest.mark.parametrize(
    ("correct", "samples", "strength"),
    [(0, 16, 0), (2, 16, 0.035), (8, 16, 0.28), (24, 64, 0.266), (2, 2, 0.342)],
)
def test_strength_is_the_lower_end_of_the_interval(correct, samples, strength):
    one = Evidence(
        kind="solve_rate", by="m", correct=correct, samples=samples, source="rate"
    )
    assert one.strength == pytest.approx(strength, abs=1e-3)


def test_a_documented_set_and_curated_rows_keep_their_evidence(tmp_path):
    said = {
        "kind": "verified_solutions", "by": "R1", "correct": 3, "samples": 3,
        "source": "its card",
    }  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row("a", "What is $3+4$?") | {"generations": ["x"]}))
    (first,) = read_rows(Source(path=str(path), evidence=said))
    assert [one.by for one in first.evidence] == ["R1"] and first.meta == {}
    path.write_text(json.dumps(first.record()))
    (again,) = read_rows(Source(path=str(path)))
    assert again.evidence == first.evidence
    graded = first.record() | {"graded": {"correct": 3, "samples": 8}}
    path.write_text(json.dumps(graded))
    (again,) = read_rows(Source(path=str(path)))
    assert [one.by for one in again.evidence] == ["R1", "tools.grade"]
    assert read_evidence({"evidence": 5}, ["7"], "set") == []
    with pytest.raises(ValueError, match="rows.jsonl: .*evidence.kinds=3: unknown key"):
        Source(path=str(path), evidence={"kinds": 3})


ASK = "How many {} are there among the first {} hundred numbers?"
ROWS = [
    row("often", ASK.format("primes", 2), solve_rate=0.9),
    row("seldom", ASK.format("squares", 3), solve_rate=0.125),
    row("never", ASK.format("cubes", 4), solve_rate=0.0),
    row("untried", ASK.format("palindromes", 5)),
    row("solved copy", ASK.format("odd squares", 7), "8", solve_rate=0.75),
    row("other copy", ASK.format("odd squares", 7), "9"),
]


@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("required", ["often", "solved copy"]),
        ("preferred", ["often", "seldom", "never", "untried", "solved copy"]),
        ("off", ["often", "seldom", "never", "untried"]),
    ],
)
def test_what_becomes_of_rows_without_evidence(tmp_path, mode, kept):
    summary, out = run(tmp_path, ROWS, evidence=mode)
    assert list(read(out / "problems.jsonl")) == kept
    dropped = read(out / "dropped.jsonl")
    if mode == "required":
        assert dropped["seldom"]["details"] == {"no_evidence": "rows: 2/16"}
        assert dropped["untried"]["details"] == {"no_evidence": "none"}
    if mode == "preferred":
        levels = {name: r["level"] for name, r in read(out / "problems.jsonl").items()}
        assert levels["never"] == 5 and levels["untried"] is None
    (entry,) = summary["by_source"].values()
    assert (entry["rows"], entry["with evidence"]) == (6, 2)
    assert entry["kept"] == len(kept)


@pytest.mark.parametrize(
    ("origins", "agreement"),
    [("ab", [("a and b", 2, 2)]), ("aa", []), (("a", ""), []), (("", "b"), [])],
)
def test_copies_share_evidence_and_sets_of_two_origins_agree(
    tmp_path, origins, agreement
):
    sources = []
    for name, origin in zip("ab", origins, strict=True):
        path = tmp_path / f"{name}.jsonl"
        solved = {"llama8b_solve_rate": 0.5} if name == "b" else {}
        path.write_text(json.dumps(ROWS[3] | solved | {"id": name}))
        sources.append({"path": str(path), "origin": origin})
    _, out = run(tmp_path, [], sources=sources, evidence="required")
    (kept,) = read(out / "problems.jsonl").values()
    counts = [(one["by"], one["correct"], one["samples"]) for one in kept["evidence"]]
    assert counts == [("Llama-3.1-8B", 32, 64), *agreement]


def test_the_report_has_the_golds_that_were_read_as_wrong(tmp_path):
    path = tmp_path / "read.jsonl"
    path.write_text('{"source": "rows", "wrong": true}\n' * 2)
    with path.open("a") as file:
        file.write('{"source": "rows", "wrong": false}\n' * 18)
    assert load_readings(str(path)) == {"rows": (20, 2)} and load_readings("") == {}
    summary, out = run(tmp_path, ROWS, readings=str(path))
    (entry,) = summary["by_source"].values()
    assert entry["golds read"] == 20 and entry["wrong golds"] == "10.0% [2.8%, 30.1%]"
    assert "10.0% [2.8%, 30.1%]" in (out / "report.md").read_text()
    path.write_text('{"source": "rows"}\n')
    with pytest.raises(ValueError, match="read.jsonl:1: wrong=None: must be"):
        load_readings(str(path))
