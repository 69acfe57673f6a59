"""Every part of the GPU check runs on a CPU with a small model."""

import json

import pytest

from tools.gpu_check.__main__ import PARTS, main


def _rows(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").open()]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(3600)
def test_every_part_runs_on_a_cpu(tmp_path):
    assert main(["--tiny", f"--out={tmp_path}", "--seconds=3400"]) == 0
    rows = _rows(tmp_path)
    assert {row["part"] for row in rows} == {*PARTS}
    (resume,) = (row for row in rows if row["what"] == "resume")
    assert resume["other_process_same"] and resume["resumed_same"]
    errors = [row for row in rows if row["what"] in ("attention", "as_cpu_highest")]
    assert all(row.get("worst_error", row.get("error_dk")) < 1e-5 for row in errors)


def test_a_part_that_runs_too_long_does_not_stop_the_next(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(PARTS, "kernels", ("kernels", 0))
    assert main(["--tiny", f"--out={tmp_path}", "--only=kernels,machine"]) == 1
    assert {row["part"] for row in _rows(tmp_path)} == {"machine"}
    assert "kernels        status -9" in capsys.readouterr().out
    assert "killed after 0 s" in (tmp_path / "log.txt").read_text()
