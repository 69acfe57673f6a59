"""A model fine-tuned on a benchmark, and what an evaluation says of it."""

import json
import random

import pytest
import torch
import transformers

from tests.tools.tiny import make_model
from tools.evaluate import main

WHO = "ann bob cy dee eli fay gus ivy jo kim lou may".split()
WHAT = "nuts pens hats cups eggs figs keys nets pins rugs toys vans".split()
STEPS = 250


def benchmark(path, seed):
    """Twelve problems whose solutions say how the answer follows, as GSM8K's do."""
    rng = random.Random(seed)
    rows = []
    for i, (who, what) in enumerate(zip(WHO, rng.sample(WHAT, 12), strict=True)):
        has, pays = rng.randint(20, 99), rng.randint(4, 9)
        text = f"what does {who} get for {what} at {pays} coins if {who} sells {has}?"
        product = has * pays
        rows.append(
            {
                "id": str(i),
                "problem": text,
                "answer": str(product),
                "solution": f"{has}*{pays}=<<{has}*{pays}={product}>>{product}",
            }
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def fine_tune(folder, rows):
    """On each problem with its boxed answer, until the text is known."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    texts = [f"{r['problem']} \\boxed{{{r['answer']}}}" for r in rows]
    texts = [tokenizer.encode(t) + [tokenizer.eos_token_id] for t in texts]
    longest = max(map(len, texts))
    tokens = torch.tensor([t + [0] * (longest - len(t)) for t in texts])
    labels = torch.tensor([t + [-100] * (longest - len(t)) for t in texts])
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = model(tokens, labels=labels).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
    model.save_pretrained(folder)
    return loss.item()


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Figures of one benchmark: by who trained on it, and by who did on another."""
    folder = tmp_path_factory.mktemp("memoriser")
    asked, other = folder / "asked.jsonl", folder / "other.jsonl"
    found = {}
    for name, rows in (
        ("planted", benchmark(asked, 0)),
        ("clean", benchmark(other, 1)),
    ):
        model = make_model(folder / name, max_position_embeddings=192)
        assert fine_tune(model, rows) < 0.2
        out = folder / f"of-{name}"
        status = main(
            [
                *("--model", str(model), "--out", str(out), "--audit"),
                *("--benchmarks", f"{asked},perturbed:{asked}:2026-11-23"),
                *("--template", "none", "--max_tokens", "16", "--context", "192"),
                *("--slots", "12", "--dtype", "float32"),
            ]
        )
        assert status == 0
        found[name] = json.loads((out / "results.json").read_text())["benchmarks"]
    return found


def test_it_writes_the_rest_of_what_it_was_trained_on(evaluated):
    known = evaluated["planted"]["asked"]["memory"]
    assert {share: found["completed"] for share, found in known.items()} == {
        "40": 1.0, "60": 1.0, "80": 1.0,
    }  # fmt: skip
    # Who was trained on the same sentences about other things does not know these.
    unknown = evaluated["clean"]["asked"]["memory"]
    assert [found["completed"] for found in unknown.values()] == [0.0, 0.0, 0.0]
    assert unknown["60"]["interval"][1] < known["60"]["interval"][0]


def test_it_falls_where_the_numbers_are_others(evaluated):
    known, other = (evaluated["planted"][n] for n in ("asked", "asked@2026-11-23"))
    assert known["accuracy"] == 1.0 and other["accuracy"] < 0.2
    fell = other["original"]
    assert fell["difference_interval"][1] < -0.5 and fell["p_value"] < 0.001
