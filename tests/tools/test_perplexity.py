"""A text under two models, through the command, against transformers."""

import json
import math

import numpy as np
import pytest
import torch
import transformers

from tests.tools.tiny import END, make_model
from tools import perplexity
from tools.evaluation.pretrained import find_pretrained

TEXT = "thesumof12and7is19" * 20  # 360 characters, a token each


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    a, b = (make_model(folder / name, seed=i) for i, name in enumerate("ab"))
    texts = [folder / f"text{i}.txt" for i in range(3)]
    for path in texts:
        path.write_text(TEXT)
    out = folder / "out.json"
    arguments = [str(a), str(b), "--text", ",".join(map(str, texts)), "--context", "24"]
    assert perplexity.main([*arguments, "--json", str(out)]) == 0
    return a, b, json.loads(out.read_text())


def by_transformers(folder, begin=(), context=64):
    """Mean of -log p of each token, given those before it in its window."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    nats = []
    for window in perplexity.windows(ids, context - len(begin)):
        given = torch.tensor([[*begin, *window]])
        with torch.no_grad():
            logits = model(given).logits.double()
        of_next = -logits.log_softmax(-1)[0, :-1].gather(1, given[0, 1:, None])
        nats += of_next[len(begin) :, 0].tolist()
    return nats


def test_it_is_that_of_transformers(asked):
    a, _, result = asked
    nats = by_transformers(a, context=24)
    found = result["models"][str(a)]
    assert found["tokens"] == 3 * len(nats) == 3 * 359
    assert found["nats"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(
        sum(nats) / math.log(2) / 360, rel=1e-5
    )


def test_every_window_begins_as_the_tokenizer_begins_a_text(tmp_path):
    folder = make_model(tmp_path / "llama")
    path = folder / "tokenizer.json"
    written = json.loads(path.read_text())
    begin = {"SpecialToken": {"id": END, "type_id": 0}}
    written["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, begin,
                 {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {END: {"id": END, "ids": [0], "tokens": [END]}},
    }  # fmt: skip
    path.write_text(json.dumps(written))
    model = find_pretrained(folder, "float32")
    found = perplexity.score(model, [TEXT], context=64)
    nats = by_transformers(folder, begin=[0])
    assert found["tokens"] == len(nats) == 359
    assert found["nats"] == pytest.approx(np.mean(nats), rel=1e-5)
    # Without it: what each window's first tokens would be scored as.
    assert abs(found["nats"] - np.mean(by_transformers(folder))) > 1e-3


def test_another_model_is_compared_window_by_window(asked):
    a, b, result = asked
    first, other = (result["models"][str(m)] for m in (a, b))
    said = other["against_first"]
    assert said["difference"] == pytest.approx(other["nats"] - first["nats"])
    low, high = said["interval"]
    assert low < said["difference"] < high
    assert "against_first" not in first
    table = perplexity.markdown(result)
    assert f"{said['difference']:+.4f} [{low:+.4f}, {high:+.4f}]" in table


def test_windows_predict_every_token_once():
    for tokens, length, sizes in ((10, 4, [4, 4, 4]), (9, 4, [4, 3, 4]), (2, 8, [2])):
        cut = perplexity.windows(list(range(tokens)), length)
        assert [len(w) for w in cut] == sizes
        predicted = [t for w in cut for t in w[1:]]
        assert predicted == list(range(1, tokens))


def test_an_interval_needs_three_texts_and_forty_windows():
    a = {"ids": "a", "nats": 1.0, "of_windows": [1.0, 2.0] * 20, "texts": 3}
    b = a | {"nats": 1.5, "of_windows": [1.4, 2.6] * 20}
    # Differences 0.4 and 0.6: sd 0.1013, t of 39 degrees of freedom 2.0227.
    low, high = perplexity.compared(a, b)["interval"]
    assert (low, high) == pytest.approx((0.4676, 0.5324), abs=5e-4)
    assert perplexity.compared(a | {"texts": 2}, b)["interval"] is None
    fewer = {"of_windows": [1.0] * 39}
    assert perplexity.compared(a | fewer, b | fewer)["interval"] is None


def test_other_tokens_are_not_paired():
    a = {"ids": "a", "nats": 1.0, "of_windows": [1.0], "texts": 1}
    assert perplexity.compared(a, a | {"ids": "b"}) is None


@pytest.mark.failure(33)
def test_what_cannot_be_scored_is_one_line(asked, tmp_path, capsys):
    a, _, _ = asked
    text = tmp_path / "t.txt"
    text.write_text("1")
    long = tmp_path / "long.txt"
    long.write_text(TEXT)
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9s")
    for arguments, message in (
        (["no/such", "--text", str(text)], "no/such: no such"),
        ([str(a), "--text", "missing.txt"], "missing.txt"),
        ([str(a), "--text", str(text)], "text 1 of --text: length 1, window 64: "),
        ([str(a), "--text", str(long), "--context", "97"], "exceed the 96 positions"),
        ([str(a), "--text", str(latin)], "latin.txt: damaged ('utf-8' codec"),
    ):
        assert perplexity.main([*["--context", "64"], *arguments]) == 2
        assert message in capsys.readouterr().err
