"""Conversion both ways, as a user types it."""

import json

import pytest

from tests.models import reference
from tools import convert


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_survives_the_way_to_a_checkpoint_and_back(tmp_path, tied, capsys):
    source, middle, target = (tmp_path / name for name in ("in", "ckpt", "out"))
    # 8 devices share the parameters: sizes that divide.
    reference.make(source, tie_word_embeddings=tied)
    report = tmp_path / "report.json"
    assert not convert.main(["--hf", str(source), "--out", str(middle)])
    assert not convert.main(
        ["--checkpoint", str(middle), "--out", str(target), "--dtype", "float32"]
        + ["--json", str(report)]
    )
    assert reference.contents(target) == reference.contents(source)
    result = json.loads(report.read_text())
    assert result["out"] == str(target)
    last = f"{target}: {result['parameters']:,} parameters\n"
    assert capsys.readouterr().out.endswith(last)


@pytest.mark.failure(131)
@pytest.mark.failure(133)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--hf", "no/such", "--out", "x"], "no/such: no such folder"),
        (["--peft", "no/such", "--out", "x"], "no/such"),
        (["--peft", "no/such", "--out", "."], ": already exists"),
        (["--workdir", "no/such", "--out", "x"], "config.json: no such file"),
        (["--peft", "a", "--step", "3", "--out", "x"], "--step 3: requires --workdir"),
        (["--gguf", "a", "--base", "b", "--out", "x"], "--base b: requires --peft or"),
        (["--hf", "a", "--dtype", "float32", "--out", "x"], "has no effect with --hf"),
        (["--hf", "a", "--out", "x[1]"], "--out=x[1]: must not contain a bracket"),
    ],
)
def test_what_cannot_be_converted_is_one_line(arguments, message, capsys):
    assert convert.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.failure(203)
def test_a_base_that_is_elsewhere_is_one_line(tmp_path, capsys):
    content = dict(peft_type="LORA", bias="none", r=1, lora_alpha=1)
    content["base_model_name_or_path"] = "/of/another/machine"
    (tmp_path / "adapter_config.json").write_text(json.dumps(content))
    out = str(tmp_path / "out")
    assert convert.main(["--peft", str(tmp_path), "--out", out]) == 2
    error = capsys.readouterr().err
    assert "/of/another/machine: no such model folder; give a folder" in error
    assert error.endswith("; --base names another base of adapters\n")
