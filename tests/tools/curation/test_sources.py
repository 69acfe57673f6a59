"""Bad sources: one clear line each, that names the file, the row and the value."""

import datetime
import decimal
import json
import pathlib

import pytest

from rl.files import replace_rows
from tools.curation.sources import Source, read

GOOD = {"id": "a", "problem": "What is 1 + 1?", "answer": "2"}


def write(path: pathlib.Path, *rows) -> pathlib.Path:
    replace_rows(path, rows)
    return path


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "x"}, "rows.jsonl:2: no field 'problem' (columns: question)"),
        ({"problem": 7}, "rows.jsonl:2: 'problem' must be text, got 7"),
        ({"problem": None}, "rows.jsonl:2: 'problem' must be text, got None"),
        (GOOD | {"answer": ["2", "3"]},
         "rows.jsonl:2: 'answer' must be text, got ['2', '3']"),
        (GOOD | {"answers": "2"}, "'answers' must be a list of text, got '2'"),
        (GOOD | {"level": 4.5}, "'level' must be a level 1 to 5 or null, got 4.5"),
        (GOOD | {"level": "hard"},
         "'level' must be a level 1 to 5 or null, got 'hard'"),
        (GOOD | {"answers": ["2", []]}, "'answers' must be text, got []"),
        (GOOD | {"level": 6}, "'level' must be a level 1 to 5 or null, got 6"),
        (GOOD | {"level": True}, "'level' must be a level 1 to 5 or null, got True"),
        (GOOD | {"solve_rate": 1.5}, "'solve_rate' must be a rate in 0..1 or null"),
        (GOOD | {"meta": []}, None),
        (["a"], "rows.jsonl:2: a row must be an object, not list"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(tmp_path, row, message):
    source = Source(path=str(write(tmp_path / "rows.jsonl", GOOD, row)))
    if message is None:
        assert len(read(source)) == 2
        return
    with pytest.raises(ValueError) as error:
        read(source)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.failure(33)
def test_a_gigabyte_on_one_line_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.truncate(2**30)  # sparse: takes no disk
    with pytest.raises(ValueError, match=r"rows.jsonl:1: line longer than 16 MiB"):
        read(Source(path=str(path)))


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        Source(path=str(tmp_path / "none.jsonl"))
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match="empty, no rows"):
        Source(path=str(tmp_path / "empty.jsonl"))
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"must end in .jsonl, .json or .parquet"):
        Source(path=str(tmp_path / "rows.csv"))


def test_fields_are_mapped_and_a_missing_one_is_named(tmp_path):
    row = {"question": "What is 6 * 7?", "final": 42.0, "difficulty": 3}
    path = write(tmp_path / "other.jsonl", row)
    fields = {"problem": "question", "answer": "final", "level": "difficulty"}
    (read_row,) = read(Source(path=str(path), fields=fields))
    assert (read_row.problem, read_row.answers) == ("What is 6 * 7?", ("42",))
    assert (read_row.level, read_row.level_source) == (3, "other")
    assert (read_row.id, read_row.source) == ("other-0", "other")
    with pytest.raises(ValueError, match=r"no field 'gold' \(columns: difficulty"):
        list(read(Source(path=str(path), fields=fields | {"answer": "gold"})))


def test_numbers_are_read_however_they_are_written(tmp_path):
    row = {"problem": GOOD["problem"], "answers": "[2, 2.5]", "level": 4.0}
    (row,) = read(Source(path=str(write(tmp_path / "rows.jsonl", row))))
    assert (row.answers, row.level) == (("2", "2.5"), 4)


@pytest.mark.parametrize("answer", [["12"], '["12"]', "['12']", [12], 12.0])
def test_a_list_of_one_is_that_one(tmp_path, answer):
    row = GOOD | {"answer": answer}
    (row,) = read(Source(path=str(write(tmp_path / "rows.jsonl", row))))
    assert row.answers == ("12",)


def test_parquet_reads_like_jsonl(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet_files = pytest.importorskip("pyarrow.parquet")
    rows = [GOOD | {"id": str(i), "level": i % 5 + 1} for i in range(7)]
    write(tmp_path / "rows.jsonl", *rows)
    table = pyarrow.Table.from_pylist(rows)
    parquet_files.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    jsonl = list(read(Source(path=str(tmp_path / "rows.jsonl"))))
    parquet = list(read(Source(path=str(tmp_path / "rows.parquet"))))
    assert parquet == jsonl
    (tmp_path / "bad.parquet").write_bytes(b"not a parquet file")
    with pytest.raises(ValueError, match=r"bad.parquet: not Parquet"):
        read(Source(path=str(tmp_path / "bad.parquet")))


@pytest.mark.failure(113)
def test_types_that_json_does_not_have_are_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet_files = pytest.importorskip("pyarrow.parquet")
    columns = {
        "problem": ["a", "b"],
        "answer": pyarrow.array([0.1, 3.0], pyarrow.float32()),
        "made": [datetime.date(2026, 11, 28), None],
        "image": [b"\xff", b"x"],
        "price": [decimal.Decimal("2.50")] * 2,
    }
    path = tmp_path / "rows.parquet"
    parquet_files.write_table(pyarrow.table(columns), path)
    first, second = read(Source(path=str(path)))
    assert (first.answers, second.answers) == (("0.1",), ("3",))
    assert json.loads(json.dumps(first.record()))["meta"] == {
        "made": "2026-11-28", "image": "\ufffd", "price": "2.50",
    }  # fmt: skip
