import json
import pathlib

import pytest

from rl.benchmarks import BENCHMARKS, benchmark_name, load_benchmark, read_problems

ROWS = {
    "aime2024": 30,
    "amc83": 83,
    "math500": 500,
    "minerva272": 272,
    "olympiadbench675": 675,
    "gsm8k_test": 1319,
}


@pytest.mark.parametrize("name", ROWS)
def test_the_six_files_are_the_benchmarks(shared_data, name):
    problems = load_benchmark(name, shared_data)  # eval/ is looked into
    assert len(problems) == ROWS[name]
    assert problems == load_benchmark(name, shared_data / "eval")
    assert set(ROWS) == set(BENCHMARKS)


def test_several_answers_levels_and_meta(shared_data):
    minerva = {p.id: p for p in load_benchmark("minerva272", shared_data)}
    assert minerva["minerva-010"].answers == ("0.01", "0.02")
    math500 = load_benchmark("math500", shared_data)
    assert [sum(p.level == i for p in math500) for i in range(1, 6)] == [
        43, 90, 105, 128, 134,
    ]  # fmt: skip
    olympiad = {p.id: p for p in load_benchmark("olympiadbench675", shared_data)}
    assert olympiad["olympiadbench-316"].meta["error"] == "1e-1"


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


def test_one_changed_answer_is_noticed(shared_data, tmp_path):
    rewrite(shared_data, tmp_path, lambda rows: rows[7].update(answers=["025"]))
    with pytest.raises(ValueError, match="content hash .* instead of 03107dabf523"):
        load_benchmark("aime2024", tmp_path)
    # Under its own path it is a set like any other.
    assert len(load_benchmark(str(tmp_path / "aime2024.jsonl"))) == 30


def test_a_short_file_is_noticed(shared_data, tmp_path):
    rewrite(shared_data, tmp_path, lambda rows: rows.pop())
    with pytest.raises(ValueError, match="29 rows instead of 30"):
        load_benchmark("aime2024", tmp_path)


def test_specs():
    assert benchmark_name("math500") == "math500"
    assert benchmark_name("runs/q/held_out.jsonl") == "held_out"
    with pytest.raises(ValueError, match="benchmark 'math5000': neither one of aime20"):
        load_benchmark("math5000")
    with pytest.raises(ValueError, match="--data_dir must say where"):
        load_benchmark("math500")
    with pytest.raises(FileNotFoundError, match="no file .*math500.jsonl"):
        load_benchmark("math500", pathlib.Path("/nonexistent"))


GOOD = '{"id": "a", "problem": "1+1?", "answer": "2"}'


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "rows, message",
    [
        ([GOOD, "{"], r"set.jsonl:2: not JSON \(Expecting property name"),
        ([GOOD, "[1]"], r"set.jsonl:2: a row must be an object, not '\[1\]'"),
        (['{"answer": "2"}'], "set.jsonl:1: problem=None must be a text"),
        (['{"problem": "x?"}'], r"set.jsonl:1: answers=\[None\] must be texts"),
        (['{"problem": "x?", "answers": [2]}'], r"answers=\[2\] must be texts"),
        (['{"problem": "x", "answer": "2", "level": "hard"}'], "level='hard' must be"),
        ([GOOD, GOOD], "id 'a' occurs twice"),
        ([], "holds no problem"),
    ],
)
def test_malformed_rows_are_one_clear_line(tmp_path, rows, message):
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(rows))
    with pytest.raises(ValueError, match=message) as caught:
        read_problems(path)
    assert "\n" not in str(caught.value)


def test_a_line_separator_inside_a_text_ends_no_row(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_text('{"problem": "a\u2028b\x85", "answer": "2"}\n', "utf-8")
    assert [p.problem for p in read_problems(path)] == ["a\u2028b\x85"]


@pytest.mark.failure(33)
def test_not_utf8_names_the_byte(tmp_path):
    path = tmp_path / "set.jsonl"
    path.write_bytes(b'{"problem": "caf\xe9", "answer": "2"}')
    with pytest.raises(ValueError, match="byte 16 is 0xe9, not UTF-8"):
        read_problems(path)
