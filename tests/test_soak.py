"""Kills of a real run at seeded moments, in short; what a soak refuses to overlook."""

import functools
import importlib
import json
import zlib

import pytest

from tests import soak
from tests.rl import test_train as runs

# A random model; one text in eight is right, whatever it says.
TINY = soak.SMALL | {
    "reward.function": f"{__name__}:one_in_eight",
    "eval.every_steps": 3,
}


def one_in_eight(text, problem):
    return float(zlib.crc32((problem.id + text).encode()) % 8 == 0)


def _soak(what, out, capsys, *more):
    short = ["--times=3", "--steps=5", "--seed=0", *more]
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    status = soak.main([what, f"--out={out}", *short, *settings])
    told = capsys.readouterr()
    assert status == 0, told.err
    return json.loads(told.out)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.failure(30)
def test_killed_where_a_seed_says_it_ends_bit_for_bit_the_same(tmp_path, capsys):
    result = _soak("kill", tmp_path, capsys)
    assert result["struck"] == sum(result["by_moment"].values()) == 3
    # Most groups are dropped, so that some are left over and some have to be drawn on.
    rows = runs._rows(tmp_path / "whole" / "metrics.jsonl")
    rows = [row for row in rows if "reward/mean" in row]
    assert sum(row["sampling/rounds"] for row in rows) > len(rows)
    assert any(row["sampling/carried"] for row in rows)
    assert sum(row["sampling/groups"] for row in rows) > 2 * 4 * len(rows)


@pytest.mark.slow
@pytest.mark.failure(35)
def test_stopped_anywhere_it_ends_soon_and_resumes(tmp_path, capsys):
    result = _soak("stop", tmp_path, capsys, "--within=10")  # others may be at work
    assert result["struck"] == len(result["longest_seconds"]) == 3


def test_every_moment_names_a_function():
    for where, _, _ in soak._MOMENTS.values():
        module, _, path = where.partition(":")
        functools.reduce(getattr, path.split("."), importlib.import_module(module))
