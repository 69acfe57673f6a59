"""The real tokenizer and real data through the same command, with random weights."""

import json
import shutil
import sys

import pytest

from tests.models import reference
from tests.other_processes import dotted
from tests.rl.test_train import run


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.failure(17)
def test_random_weights_find_nothing_say_so_and_end(shared_data, tmp_path):
    base = tmp_path / "base"
    sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2)
    reference.make(base, vocab_size=151_936, max_position_embeddings=1024, **sizes)
    for file in (shared_data / "qwen2_tokenizer").glob("tokenizer*.json"):
        shutil.copy(file, base)
    held_out = tmp_path / "math8.jsonl"
    with (shared_data / "eval/math500.jsonl").open() as rows:
        held_out.write_text("".join(next(rows) for _ in range(8)))
    train = shared_data / "train/gsm8k_train.jsonl"
    lengths = dict(max_prompt_tokens=480, max_response_tokens=16)
    rows = dict(row_lengths="(512,)", micro_tokens=2048)
    settings = {
        "model": dict(path=base, dtype="float32"),
        "data": dict(train=train, eval=held_out, template="qwen_math"),
        "rollout": dict(group_size=4, slots=2, **lengths),
        "batch": dict(prompts_per_step=2, prompts_per_update=2, **rows),
        "dynamic_sampling.max_rounds": 1,
        "eval": dict(samples=1, greedy=False),
        "mesh.cpu_devices": 1,
        "steps": 9,
    }
    workdir = tmp_path / "run"
    flags = ["--config=configs/base.py", f"--workdir={workdir}"]
    flags += [f"--config.{key}={value}" for key, value in dotted(settings).items()]
    done = run([sys.executable, "-m", "rl.train", *flags])
    assert done.stdout.count("too few informative groups, no update") == 4
    end = "ending after step 4: 5 consecutive steps had no update: only 0 of 2"
    assert end in done.stdout
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary["steps"] == 4 and summary["updates"] == 0
    assert "5 consecutive steps" in summary["ended"]
    assert summary["final"]["problems"] == 8
    assert summary["final"]["accuracy"] == summary["base"]["accuracy"]
    sample = json.loads((workdir / "samples.jsonl").read_text().splitlines()[0])
    assert sample["finish_reason"] == "length"
    exported, own = (f / "tokenizer.json" for f in (workdir / "hf", base))
    assert exported.read_bytes() == own.read_bytes()
