"""The benches' own arithmetic: what a figure is a fraction of."""

import argparse
import functools
import json
import pathlib

import numpy as np
import pytest

from tools.bench import learning, sampler, update, verifier, work
from tools.bench.work import Shape, make_segments


def _lengths(shape):
    return np.array([len(segment.token_ids) for segment in make_segments(shape)])


def test_operations_of_a_forward_pass_are_counted_beyond_32_bits():
    """By hand: 32 rows of 2,013,265,920 + 134,217,728 + 2,147,483,648; the last, the
    head of one row, is -2**31 in the int32 of its lengths."""
    shape = Shape(vocab=32768)
    assert shape.forward_flops(_lengths(shape)) == 2**37


def test_lognormal_lengths_have_the_spread_and_the_longest_that_they_name():
    lengths = _lengths(Shape(groups=500, prompt=0, lengths="lognormal"))
    assert lengths.max() == 128
    spread = np.quantile(lengths, 0.95) / np.median(lengths)
    assert 3.5 < spread < 4.5


def test_the_verifiers_bench_measures_pairs(tmp_path):
    row = {"mode": "answer", "kind": "exact", "source": "mathcoder"}
    rows = [
        row | {"gold": "1/2", "pred": "0.5", "label": True},
        row | {"gold": "1/2", "pred": "0.6", "label": False},
        row | {"gold": "1", "pred": "\\sin 1", "label": True, "source": "hardverify"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = argparse.Namespace(pairs=path, repeat=1)
    result = verifier.run(arguments)
    assert result["pairs"] == 3 and result["math_verify"]["version"] == "0.9.0"
    assert result["ratios"]["all / math_verify"] > 0
    assert result["this project"]["model outputs"]["accuracy"] == 1.0
    assert result["this project"]["hardverify"]["accuracy"] == 0.0
    assert result["this project"]["all"]["false_positives"] == 0


@pytest.mark.parametrize("bench", [update, sampler], ids=["update", "sampler"])
def test_a_bench_runs_with_the_peers_that_are_installed(bench, monkeypatch):
    # As large as a bench multiplies them, matrices would take most of the time.
    peak = functools.partial(work.matmul_peak, 64)
    monkeypatch.setattr(work, "matmul_peak", peak)
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    sizes = "--groups 2 --group_size 2 --prompt 16 --completion 16 --vocab 64"
    sizes += " --layers 1 --hidden 32 --heads 2 --kv_heads 1 --mlp 32 --repeat 1"
    result = bench.run(parser.parse_args(sizes.split()))
    rates = {name: row["tokens_per_s"] for name, row in result["this project"].items()}
    assert min(rates.values()) > 0
    if bench is sampler:
        assert {*result["ratios"]} == {f"{name} / transformers" for name in rates}


def test_a_finished_run_of_trl_is_not_repeated(tmp_path, monkeypatch):
    commands = []

    def train(command, check):
        commands.append(command)
        pathlib.Path(command[3]).parent.mkdir()
        pathlib.Path(command[3]).write_text('[{"step": 0}]')

    monkeypatch.setattr(learning.subprocess, "run", train)
    for updates in (2, 2, 4):
        curve = learning.trl_curve(tmp_path / f"{updates}", 0, 200, updates)
        assert curve == [{"step": 0}]
    assert [command[-3:] for command in commands] == [
        ["0", "200", "2"], ["0", "200", "4"],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.ci
def test_the_learning_bench_trains_and_finds_its_runs_again(tmp_path):
    parser = argparse.ArgumentParser()
    learning.add_arguments(parser)
    flags = ["--out", str(tmp_path), "--seeds", "0", "--steps=1", "--arms", "plain"]
    result = learning.run(parser.parse_args(flags))
    (row,) = result["arms"]["plain"]
    assert 0.3 < row["base"] < 0.45 and row["seconds"] > 0
    assert learning.run(parser.parse_args(flags)) == result
