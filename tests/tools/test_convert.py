"""What cannot be converted is one line; tests/rl/test_lora.py converts runs."""

import pytest

from tools import convert


@pytest.mark.failure(33)
def test_what_cannot_be_converted_is_one_line(tmp_path):
    (tmp_path / "there").mkdir()
    for arguments, message in (
        (["--peft", "no/such", "--out", "x"], "no/such"),
        (["--workdir", "no/such", "--out", str(tmp_path)], ": already exists"),
        (["--workdir", str(tmp_path), "--out", "x"], "config.json: no such file"),
        (
            ["--peft", "a/b", "--step", "3", "--out", "x"],
            "--step 3: requires --workdir",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            convert.main(arguments)
        assert message in str(stop.value) and "\n" not in str(stop.value)
