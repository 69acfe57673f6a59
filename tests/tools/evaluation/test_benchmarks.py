import json
import pathlib

import pytest

from tools.evaluation.benchmarks import BENCHMARKS, benchmark_name, load_benchmark


def test_the_six_files_are_the_benchmarks(shared_data):
    here = [name for name, benchmark in BENCHMARKS.items() if benchmark.sha256]
    assert len(here) == 6
    for name in here:
        problems = load_benchmark(name, shared_data)  # eval/ is looked into
        assert len(problems) == BENCHMARKS[name].rows
        assert problems == load_benchmark(name, shared_data / "eval")


def rewrite(shared_data, tmp_path, change):
    text = (shared_data / "eval" / "aime2024.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    change(rows)
    out = tmp_path / "aime2024.jsonl"
    out.write_bytes("\r\n".join(map(json.dumps, rows)).encode())
    return out


def test_a_copy_in_another_form_is_the_same_benchmark(shared_data, tmp_path):
    def drop_meta(rows):
        for row in rows:
            del row["meta"]

    rewrite(shared_data, tmp_path, drop_meta)
    assert len(load_benchmark("aime2024", tmp_path)) == 30


def test_a_changed_answer_is_refused(shared_data, tmp_path):
    path = rewrite(shared_data, tmp_path, lambda rows: rows[7].update(answers=["025"]))
    with pytest.raises(ValueError, match="differs from the published aime2024, which"):
        load_benchmark("aime2024", tmp_path)
    assert load_benchmark(str(path))[7].answers == ("025",)


@pytest.mark.failure(176)
def test_a_file_with_the_name_of_a_benchmark_is_compared_with_it(tmp_path, capsys):
    (tmp_path / "math500.jsonl").write_text('{"problem": "1+1", "answer": "2"}\n')
    load_benchmark(str(tmp_path / "math500.jsonl"))
    assert "differs from the published MATH-500" in capsys.readouterr().err


def test_specs():
    assert benchmark_name("math500") == "math500"
    assert benchmark_name("runs/q/held_out.jsonl") == "held_out"
    with pytest.raises(ValueError, match="benchmark 'math5000': must be one of aime20"):
        load_benchmark("math5000")
    # The suite runs offline.
    with pytest.raises(ValueError, match="test.jsonl: could not be downloaded"):
        load_benchmark("hf://nobody/nothing/test.jsonl")
    with pytest.raises(ValueError, match="must be hf://OWNER/DATASET/PATH"):
        load_benchmark("hf://nobody/test.jsonl")
    with pytest.raises(ValueError, match="give the folder with its file as"):
        load_benchmark("math500")
    with pytest.raises(FileNotFoundError, match="neither .*math500.jsonl nor"):
        load_benchmark("math500", pathlib.Path("/nonexistent"))
