"""Arguments of the conversion; other tests convert GGUF files, runs and adapters."""

import pytest

from tools import convert


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--peft", "no/such", "--out", "x"], "no/such"),
        (["--peft", "no/such", "--out", "."], ": already exists"),
        (["--workdir", "no/such", "--out", "x"], "config.json: no such file"),
        (["--peft", "a", "--step", "3", "--out", "x"], "--step 3: requires --workdir"),
        (["--gguf", "a", "--base", "b", "--out", "x"], "--base b: requires --peft or"),
    ],
)
def test_what_cannot_be_converted_is_one_line(arguments, message, capsys):
    assert convert.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
