"""The benches' own arithmetic: what a figure is a fraction of."""

import argparse
import json

import numpy as np

from tools.bench import update, verifier
from tools.bench.work import Shape, make_tokens


def test_operations_of_a_forward_pass_are_counted_beyond_32_bits():
    """By hand: 32 rows of 2,013,265,920 + 134,217,728 + 2,147,483,648; the last, the
    head of one row, is -2**31 in the int32 of its lengths."""
    shape = Shape(vocab=32768)
    assert shape.forward_flops(make_tokens(shape)["lengths"]) == 2**37


def test_lognormal_lengths_have_the_spread_and_the_longest_that_they_name():
    lengths = make_tokens(Shape(groups=500, lengths="lognormal"))["lengths"]
    assert lengths.max() == 128
    spread = np.quantile(lengths, 0.95) / np.median(lengths)
    assert 3.5 < spread < 4.5


def test_a_page_is_what_all_prompts_begin_with_and_no_more():
    prompts = make_tokens(Shape(page=100))["prompts"]
    alike = (prompts == prompts[0]).all(axis=0)
    assert alike[:100].all() and not alike[100:110].all()


def test_the_verifiers_bench_measures_pairs_and_the_pool(tmp_path):
    row = {"mode": "answer", "kind": "exact", "source": "mathcoder"}
    rows = [
        row | {"gold": "1/2", "pred": "0.5", "label": True},
        row | {"gold": "1/2", "pred": "0.6", "label": False},
        row | {"gold": "1", "pred": "\\sin 1", "label": True, "source": "hardverify"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = argparse.Namespace(
        pairs=path, repeat=1, workers=1, completions=200, only_ours=True
    )
    result = verifier.run(arguments)
    assert result["pairs"] == 3 and result["symmetric"] and result["reflexive"]
    assert result["ours"]["model outputs"]["accuracy"] == 1.0
    assert result["ours"]["hardverify"]["accuracy"] == 0.0
    assert result["ours"]["all"]["false_positives"] == 0
    assert result["pool"]["completions"] == sum(result["pool"]["rules"].values()) - 200


def test_the_updates_bench_runs():
    parser = argparse.ArgumentParser()
    update.add_arguments(parser)
    sizes = "--groups 2 --group_size 2 --prompt 16 --completion 16 --vocab 64"
    sizes += " --layers 1 --hidden 32 --heads 2 --kv_heads 1 --mlp 32"
    result = update.run(
        parser.parse_args([*sizes.split(), "--repeat=1", "--only_ours"])
    )
    assert result["ours"]["update"]["tokens_per_s"] > 0
    assert result["positions"] <= 4 * 32
