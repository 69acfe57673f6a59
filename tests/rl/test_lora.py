"""A run of adapters by the command: it resumes bit for bit, and its exports agree."""

import json
import shutil
import time
from subprocess import DEVNULL

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from tests.other_processes import environment, python, started
from tests.rl.test_train import _metrics, command, run
from tools import convert

pytestmark = [pytest.mark.slow, pytest.mark.ci]
LORA = {
    "steps": 4,
    "model.maker_args.steps": 600,  # a weaker base diverges at this learning rate
    "model.lora.rank": 8,
    "objective.kl_penalty": 0.01,
    "schedule.learning_rate": 1e-2,
}


def _weights(folder, name="model"):
    return safetensors.numpy.load_file(folder / f"{name}.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    workdir = tmp_path_factory.mktemp("run") / "work"
    run(command(workdir, cache, **LORA))
    return workdir


def test_killed_and_resumed_it_ends_bit_for_bit_the_same(finished, cache, tmp_path):
    workdir = tmp_path / "work"
    arguments = command(workdir, cache, **LORA)
    how = dict(stdout=DEVNULL, stderr=None, env=environment())
    with started([arguments[1:]], **how) as (process,):
        deadline = time.monotonic() + 300
        while not (workdir / "checkpoints/2/SHA256SUMS").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    assert "resuming after step " in run(arguments).stdout  # 2, or 3 if it was late
    assert _metrics(workdir) == _metrics(finished)
    for name in ("hf/model.safetensors", "adapter/adapter_model.safetensors"):
        assert (workdir / name).read_bytes() == (finished / name).read_bytes()


def test_the_divergence_is_from_the_base_without_its_adapters(finished):
    key = "policy/kl_reference"
    kl = [row[key] for row in _metrics(finished) if key in row]
    assert len(kl) == 4
    assert 0 < kl[0] < kl[-1]


def test_a_checkpoint_holds_the_adapters_and_names_their_base(finished, cache):
    folder = finished / "checkpoints/4"
    record = json.loads((folder / "checksums/metadata").read_text())
    assert record["base"]["path"].startswith(str(cache))
    names = {name for name in record["tensors"] if name.startswith("params/")}
    assert len(names) == 14 and all("_lora_" in name for name in names)


def test_it_is_refused_over_another_base(finished, cache, tmp_path):
    workdir = tmp_path / "work"
    shutil.copytree(finished, workdir)
    changes = {**LORA, "model.maker_args.seed": 1, "steps": 5}
    other = command(workdir, cache, **changes)
    done = run([*other, "--accept_changes"], check=False)
    assert done.returncode == 1
    assert "checkpoints/4: the frozen base under the adapters is" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_exports_are_the_policy_merged_and_apart(finished, tmp_path, capsys):
    merged = _weights(finished / "hf")
    for name, arguments in {
        "run": ["--workdir", finished],
        "peft": ["--peft", finished / "adapter", "--dtype", "float32"],
    }.items():
        out = tmp_path / name
        # In a process of its own: sums over this one's eight devices round otherwise.
        command = "-m", "tools.convert", *arguments, "--out", out
        python(*command, check=True, env=environment())
        found = _weights(out)
        assert found.keys() == merged.keys()
        for tensor, array in merged.items():
            np.testing.assert_array_equal(found[tensor], array)
    arguments = ["--workdir", str(finished), "--base", str(finished / "hf")]
    assert convert.main([*arguments, "--out", str(tmp_path / "other")]) == 2
    assert "the frozen base under the adapters is" in capsys.readouterr().err


def test_peft_computes_the_same_logits(finished):
    peft = pytest.importorskip("peft")
    content = json.loads((finished / "adapter/adapter_config.json").read_text())
    load = transformers.AutoModelForCausalLM.from_pretrained
    base = load(content["base_model_name_or_path"], dtype=torch.float32)
    ids = torch.arange(3, 13)[None]
    with torch.no_grad():
        before = base(ids).logits
        expected = load(finished / "hf", dtype=torch.float32)(ids).logits
        adapted = peft.PeftModel.from_pretrained(base, str(finished / "adapter"))
        unmerged = adapted(ids).logits
        merged = adapted.merge_and_unload()(ids).logits
    assert (before - expected).abs().max() > 1e-2
    assert (unmerged - expected).abs().max() < 1e-4
    assert (merged - expected).abs().max() < 1e-4
