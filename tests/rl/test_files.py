"""Files survive kills, full disks and each other's writers."""

import errno
import fcntl
import json

import pytest

from rl import files

ROWS = [{"step": i, "text": "ä|\n" * i} for i in range(4)]


@pytest.mark.failure(34)
def test_a_folder_has_one_holder_at_a_time(tmp_path):
    folder = tmp_path / "run"
    with files.locked(folder):
        message = "run: another process writes to this"
        with pytest.raises(BlockingIOError, match=message), files.locked(folder):
            pass
    with files.locked(folder):
        pass


@pytest.mark.failure(73)
def test_a_file_system_without_locks_is_one_line(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match=r"run: .* cannot lock files \(No locks avail"):
        with files.locked(tmp_path / "run"):
            pass


@pytest.mark.failure(85)
def test_rows_are_json_for_every_reader(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"a": float("nan"), "b": {"c": [float("-inf"), 1]}, "text": "NaN"}]
    files.replace_rows(path, rows)
    assert path.read_text() == '{"a": null, "b": {"c": [null, 1]}, "text": "NaN"}\n'


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.json"
    files.replace_json(path, {"ä": 1})
    files.replace_json(path, {"ä": 2})
    assert path.read_text("utf-8") == '{\n  "ä": 2\n}\n'
    files.replace_rows(path, ROWS)
    assert [row for _, row in files.read_rows(path)] == ROWS
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.failure(31)
def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    # There is no space for the new file, which is written first.
    (tmp_path / ".a.json.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/a.json'"):
        files.replace(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    (tmp_path / "rows.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/rows.jsonl'"):
        files.Rows(tmp_path / "rows.jsonl").write(*ROWS)


@pytest.mark.failure(31)
def test_rows_cut_anywhere_are_read_and_appended_to(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert list(files.read_rows(path, appended=True)) == []
    rows = files.Rows(path)
    rows.write(*ROWS)
    rows.close()
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        # A row is there from its last brace on, with its line end or without.
        there = ROWS[: sum(end - 1 <= cut for end in ends)]
        found = [row for _, row in files.read_rows(path, appended=True)]
        assert found == there, cut
        assert path.read_bytes() == whole[:cut]
        again = files.Rows(path)
        again.write({"step": 9})
        again.close()
        lines = path.read_text("utf-8").splitlines()
        assert list(map(json.loads, lines)) == [*there, {"step": 9}], cut


@pytest.mark.failure(33)
def test_only_the_last_row_may_be_cut_short(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a"\n{"a": 2}\n')
    with pytest.raises(ValueError, match="rows.jsonl:3: not JSON"):
        list(files.read_rows(path, appended=True))
    path.write_text('{"a": 1}\n{"a": 2')
    with pytest.raises(ValueError, match="rows.jsonl:2: not JSON"):
        list(files.read_rows(path))


def test_a_table_is_one_whatever_its_cells_hold():
    table = files.markdown_table(["a", "n"], [["x|y", "1"], ["u\nv", "2"]], "<>")
    head, rows = ["| a | n |", "| --- | ---: |"], ["| x\\|y | 1 |", "| u<br>v | 2 |"]
    assert table == [*head, *rows, ""]


def test_the_fields_of_rows_have_types(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 3}\n{"step": true}\n')
    rows = files.read_rows(path, fields={"step": int, "note": str | None})
    assert next(rows) == (f"{path}:1", {"step": 3})
    with pytest.raises(ValueError, match="a.jsonl:2: step=True: must be of type int"):
        next(rows)
