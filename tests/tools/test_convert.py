"""Conversion both ways, as a user types it."""

import json

import pytest

from tests.models import reference
from tools import convert


def _files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_survives_the_way_to_a_checkpoint_and_back(tmp_path, tied):
    source, middle, target = (tmp_path / name for name in ("in", "ckpt", "out"))
    # 8 devices share the parameters: sizes that divide.
    reference.make(source, tie_word_embeddings=tied)
    report = tmp_path / "report.json"
    convert.main(["--hf", str(source), "--out", str(middle)])
    convert.main(
        ["--checkpoint", str(middle), "--out", str(target), "--dtype", "float32"]
        + ["--json", str(report)]
    )
    assert _files(target) == _files(source)
    assert json.loads(report.read_text())["out"] == str(target)


@pytest.mark.failure(33)
def test_what_cannot_be_converted_is_one_line(tmp_path):
    (tmp_path / "there").mkdir()
    for arguments, message in (
        (["--hf", "no/such", "--out", "x"], "no/such: no such folder"),
        (["--hf", "no/such", "--out", str(tmp_path)], ": already exists"),
        (["--workdir", str(tmp_path), "--out", "x"], "config.json: no such file"),
        (["--hf", "a/b", "--step", "3", "--out", "x"], "--step 3: requires --workdir"),
    ):
        with pytest.raises(SystemExit) as stop:
            convert.main(arguments)
        assert message in str(stop.value) and "\n" not in str(stop.value)
