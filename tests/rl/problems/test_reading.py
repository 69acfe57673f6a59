"""Reading problems from files and functions."""

import dataclasses
import os

import huggingface_hub.constants
import pytest

from rl.files import replace_rows
from rl.problems.reading import load_problems
from tests.rl.examples import make_problem


def _write(path, *rows):
    replace_rows(path, rows)
    return str(path)


def test_rows_and_other_peoples_field_names(tmp_path):
    path = _write(
        tmp_path / "a.jsonl",
        {"question": "1+1?", "gold": "2", "level": 3},
        {"question": "x?", "answers": ["1", "-1"], "id": "two"},
        {"question": "3?", "gold": "3", "id": None},
        {"question": "4?", "gold": "4", "id": None},
    )
    a, b, *nameless = load_problems(
        path, key="k", fields={"problem": "question", "answer": "gold"}
    )
    assert (a.id, a.problem, a.answers, a.level) == ("a-1", "1+1?", ("2",), 3)
    assert (b.id, b.answers) == ("two", ("1", "-1"))
    assert [p.id for p in nameless] == ["a-3", "a-4"]  # not "None", twice


def test_an_answer_that_is_a_number_is_the_text_of_it(tmp_path):
    rows = [{"problem": f"{n}?", "answer": n} for n in (2, 0.5, 10**400)]
    rows.insert(2, {"problem": "x?", "answers": [1, "-1"]})
    problems = load_problems(_write(tmp_path / "a.jsonl", *rows), key="k")
    golds = [("2",), ("0.5",), ("1", "-1"), ("1" + 400 * "0",)]
    assert [p.answers for p in problems] == golds


@pytest.mark.failure(191)
def test_levels_may_be_written_as_in_math(tmp_path):
    levels = "Level 5", "3", "Level ?"
    rows = [{"problem": "1+1?", "answer": "2", "level": level} for level in levels]
    problems = load_problems(_write(tmp_path / "a.jsonl", *rows), key="k")
    assert [p.level for p in problems] == [5, 3, None]


@pytest.mark.failure(152)
def test_a_column_that_was_chosen_is_used(tmp_path):
    options = {"problem": "1+1?", "answers": ["A", "B"], "gold": "2", "level": 3.0}
    path = _write(tmp_path / "a.jsonl", options)
    key = "config.data.train"
    (problem,) = load_problems(path, key=key, fields={"answer": "gold"})
    assert (problem.answers, problem.level) == (("2",), 3)
    text = _write(tmp_path / "b.jsonl", {"problem": "1+1?", "answers": "2"})
    (problem,) = load_problems(text, key=key, fields={"answer": "answers"})
    assert problem.answers == ("2",)
    fields = {"level": "dificulty"}
    message = "level='dificulty': no row of .* has this col"
    with pytest.raises(ValueError, match=message):
        load_problems(path, key=key, fields=fields)
    assert load_problems(path, key="config.data.eval", fields=fields)
    with pytest.raises(ValueError, match=r"answer=\['gold'\]: must be a column's name"):
        load_problems(path, key=key, fields={"answer": ["gold"]})


def test_files_of_the_hub_beside_ones_that_lie_here(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    revision = "0123456789abcdef" * 2 + "01234567"
    cached = tmp_path / "datasets--ann--sums" / "snapshots" / revision / "data"
    cached.mkdir(parents=True)
    _write(cached / "train.jsonl", {"problem": "1+1?", "answer": "2"})
    here = _write(tmp_path / "b.jsonl", {"problem": "2+2?", "answer": "4"})
    there = f"hf://ann/sums@{revision}/data/train.jsonl"
    for source in (f"{there},{here}", f"{here},{there}"):
        problems = load_problems(source, key="x")
        assert sorted(p.id for p in problems) == ["b-1", "train-1"]
    with pytest.raises(ValueError, match="^hf://ann/more/x.jsonl: could not be downl"):
        load_problems(f"{here},hf://ann/more/x.jsonl", key="x")


@pytest.mark.failure(191)
@pytest.mark.failure(110)
@pytest.mark.failure(81)
@pytest.mark.failure(66)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "content,message",
    [
        (b'{"problem": "a", "answer": "1"}\n{"problem": ', "a.jsonl:2: not JSON"),
        (b'{"problem": "a", "answer": true}\n', "a.jsonl:1: field 'answer' is True"),
        (b'{"problem": "a", "answer": NaN}\n', "a.jsonl:1: field 'answer' is nan"),
        (b'{"id": 7, "problem": "a", "answer": 1}\n'
         b'{"problem": "b", "answer": "2"}\n{"id": 7, "problem": "c", "answer": 1}',
         "a.jsonl:3: id '7' occurs twice, first in .*a.jsonl:1; give"),
        (b'{"answer": "1", "question": "a"}\n',
         "a.jsonl:1: field 'problem' is missing; the row has 'answer', 'question';"
         " set config.data.fields to {'problem': 'COLUMN'}"),
        (b'{"problem": "a", "answer": ["1", "2"]}\n',
         r"a.jsonl:1: .*not text \(for a list use `answers`\); the row has .*"
         "config.data.fields to {'answers': 'COLUMN'}"),
        (b'{"problem": null, "answer": "1"}\n', "a.jsonl:1: field 'problem' is None"),
        (b'{"problem": "\\ud83d", "answer": "1"}\n',
         "a.jsonl:1: contains '.ud83d', half"),
        (b'{"problem": "a", "answer": 1' + 5000 * b"1" + b"}\n",
         r"a.jsonl:1: not JSON \(Exceeds the limit \(4300 digits\)"),
        (b'{"problem": "a", "answer": "1", "answer": "2"}\n',
         r"a.jsonl:1: not JSON \(the key 'answer' occurs twice\)"),
        (b"[\n{\n", "a.jsonl:1: not JSON .a value spans several lines"),
        (b'{"problem": "\xff", "answer": "1"}\n', "a.jsonl:1: not UTF-8"),
        (b"\x1f\x8b\x08\0", "a.jsonl: is compressed with gzip; decompress it with"),
        (b"\xff\xfe{\0\n\0", "a.jsonl: is UTF-16; convert it to UTF-8"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
        (b"[1]\n", "a.jsonl:1: a row must be an object, not list"),
        (b'{"problem": "a", "answers": []}\n', "field 'answers' is \\[\\]"),
        (b'{"problem": "a", "answers": "1"}\n',
         r"a.jsonl:1: field 'answers' is '1', .*\(for one text use `answer`\); .*"
         "config.data.fields to {'answer': 'COLUMN'}"),
        (b'{"problem": "a", "answer": "1", "level": "hard"}\n',
         "field 'level' is 'hard', not an integer .remove a column that has no lev"),
        (b"", "contains no problems"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load_problems(str(tmp_path / "a.jsonl"), key="config.data.train")
    assert "\n" not in str(error.value)


@pytest.mark.failure(114)
def test_the_name_of_a_file_may_have_a_comma(tmp_path):
    path = tmp_path / "sums, easy.jsonl"
    path.write_text('{"problem": "1+1", "answer": "2"}\n')
    assert [p.id for p in load_problems(str(path), key="x")] == ["sums, easy-1"]


@pytest.mark.failure(217)
@pytest.mark.failure(126)
@pytest.mark.failure(106)
@pytest.mark.failure(82)
def test_only_files_are_read(tmp_path):
    for name in ("https://x.org/a.jsonl", "s3://bucket/a.jsonl"):
        with pytest.raises(ValueError, match=f"^x='{name}': must be local files or hf"):
            load_problems(name, key="x")
    with pytest.raises(ValueError, match="is a folder; give the names of the files"):
        load_problems(str(tmp_path), key="x")
    with pytest.raises(ValueError, match=r"\*.jsonl: no such file; give the names"):
        load_problems(str(tmp_path / "*.jsonl"), key="x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: is a pipe or a device; write the data"):
        load_problems(str(tmp_path / "pipe"), key="x")
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(ValueError, match=f"x='{name}': must be JSONL, .*; convert"):
            load_problems(name, key="x")
    # A relative path: the folder in which it was searched.
    with pytest.raises(ValueError, match=f"gsm8k: no such file in {os.getcwd()}; give"):
        load_problems("openai/gsm8k", key="x")
    path = _write(tmp_path / "a.jsonl", {"problem": "1+1?", "answer": "2"})
    assert len(load_problems(f"{path}, {path},", key="x")) == 2
    with pytest.raises(ValueError, match="fields: levle='difficulty': unknown key"):
        load_problems(path, key="x", fields={"levle": "difficulty"})


@pytest.mark.failure(66)
def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"problem": "1+1?", "answer": "2"}\n', encoding="utf-8-sig")
    assert load_problems(str(path), key="x")[0].problem == "1+1?"


def test_files_of_one_name_have_ids_of_their_own(tmp_path):
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        row = {"problem": folder, "answer": "1"}
        paths.append(_write(tmp_path / folder / "train.jsonl", row))
    problems = load_problems(",".join(paths), key="x")
    assert [p.id for p in problems] == ["train-1", "train.2-1"]


def made(*, kind: str, key: str = ""):
    problem = make_problem()
    if kind == "raises":
        return {}[key]
    return {
        "rows": [{"problem": "1+1?"}],
        "twice": [problem, problem],
        "empty": [dataclasses.replace(problem, answers=())],
        "half": [dataclasses.replace(problem, problem="\ud83d")],
        "meta": [dataclasses.replace(problem, meta={"x": {1}})],
        "no meta": [dataclasses.replace(problem, meta=None)],
        "comma": [dataclasses.replace(problem, answers=("72"))],
        "level": [dataclasses.replace(problem, level="3")],
        "forgotten": None,
    }[kind]


@pytest.mark.failure(168)
@pytest.mark.failure(153)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "kind,message",
    [
        ("rows", "made', problem 1: must be an rl.types.Problem, not {'problem': '1.1"),
        ("twice", "problem 2: id 'p0' occurs twice, first in .* problem 1; give"),
        ("empty", r"problem 1: answers=\(\): must be a tuple of texts"),
        ("comma", "problem 1: answers='72': must be a tuple of texts"),
        ("level", "problem 1: level='3': must be an integer or None"),
        ("no meta", "problem 1: meta=None: must be a dict"),
        ("raises", r"made': tests/rl/problems/test_reading.py:\d+: KeyError: ''$"),
        ("forgotten", "made': must return problems, not None"),
        ("half", "problem 1: .*surrogates not allowed"),
        ("meta", "problem 1: .*not JSON serializable"),
        (3, "config.data.train_args.kind=3: must be of type str"),
    ],
)
def test_problems_of_a_function_are_checked_as_rows_are(kind, message):
    how = dict(key="config.data.train", arguments={"kind": kind})
    with pytest.raises(ValueError, match=message) as error:
        load_problems(f"{__name__}:made", **how)
    assert "\n" not in str(error.value)
