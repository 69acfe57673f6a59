"""Measures accuracy and speed of the verifier, and of Math-Verify.

The JSONL file --pairs has rows {gold, pred, label, mode, kind, source}. Only rows of
mode "answer" and kind "exact" are used. Both verifiers judge the same pairs in this
process, one pair at a time; no verdict is cached. Times are CPU times.
"""

import argparse
import logging
import os
import pathlib
import time
from collections.abc import Callable

import numpy as np

from configs.reading import user_path
from rl.files import read_rows
from rl.verifier import is_equivalent
from tools.bench.work import THIS, compare

Judge = Callable[[str, str], bool]  # of a prediction and a gold
_WARM_UP = ("\\sin x + \\sqrt[3]{2}", "\\int_0^1 x dx")
# Groups of sources in the result, by prefix; the first match counts.
_GROUPS = {
    "hardverify": "hardverify",
    "mathcoder": "model outputs",
    "qwen2.5-math-outputs": "model outputs",
    "": "test suites",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    data = pathlib.Path(os.environ.get("SHARED_DATA", "../shared/data"))
    parser.add_argument("--pairs", type=user_path, default=data / "verifier_dev.jsonl")
    parser.add_argument("--repeat", type=int, default=3, help="passes over the pairs")


def run(arguments: argparse.Namespace) -> dict:
    rows = [row for _, row in read_rows(arguments.pairs)]
    rows = [r for r in rows if r.get("mode") == "answer" and r.get("kind") == "exact"]
    if not rows:
        raise ValueError(
            f"{arguments.pairs}: no row has mode 'answer' and kind 'exact'; give"
            " another file with --pairs"
        )
    measured = _measure(rows, is_equivalent, arguments.repeat)
    result: dict = {"pairs": len(rows), THIS: measured}
    compare(
        result,
        "math_verify",
        lambda: _measure(rows, _math_verify(), arguments.repeat),
        rate="pairs_per_second",
    )
    return result


def _measure(rows: list[dict], judge: Judge, repeat: int) -> dict[str, dict]:
    judge(*_WARM_UP)
    seconds = np.zeros((repeat, len(rows)))
    verdicts = np.zeros(len(rows), bool)
    for of_pass in seconds:
        for index, row in enumerate(rows):
            started = time.process_time()
            verdicts[index] = judge(row["pred"], row["gold"])
            of_pass[index] = time.process_time() - started
    times = np.median(seconds, axis=0)
    labels = np.array([bool(row["label"]) for row in rows])
    names = [
        next(_GROUPS[start] for start in _GROUPS if row["source"].startswith(start))
        for row in rows
    ]
    members = {name: np.array(names) == name for name in dict.fromkeys(names)}
    members["all"] = np.ones(len(rows), bool)
    return {
        name: {
            "rows": int(own.sum()),
            "accuracy": float(np.mean(labels[own] == verdicts[own])),
            "false_positives": int(np.sum(verdicts[own] & ~labels[own])),
            "pairs_per_second": int(own.sum()) / float(times[own].sum()),
            "p50_ms": 1e3 * float(np.quantile(times[own], 0.5)),
            "p99_ms": 1e3 * float(np.quantile(times[own], 0.99)),
            "max_ms": 1e3 * float(times[own].max()),
        }
        for name, own in members.items()
    }


def _math_verify() -> Judge:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judge(predicted: str, gold: str) -> bool:
        # Without delimiters Math-Verify would look for numbers only.
        return verify(parse(f"${gold}$"), parse(f"${predicted}$"))

    return judge
