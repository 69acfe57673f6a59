"""Measures accuracy and speed of the verifier and of Math-Verify, and the pool.

Pairs are rows {gold, pred, label, mode, kind, source}; only rows that compare two
answers exactly are measured. Both sides run in one process on the same pairs, one after
the other, and nothing is kept between pairs. Starting a process does not count.
"""

import argparse
import json
import logging
import os
import pathlib
import random
import time
from collections.abc import Callable

import numpy as np

from configs.reading import user_path
from rl.verifier import VerifierPool, is_equivalent

_WARM_UP = ("\\sin x + \\sqrt[3]{2}", "\\int_0^1 x dx")
_FILLER = "so we compute \\frac{1}{2} of the total and check each case in turn. "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    data = pathlib.Path(os.environ.get("SHARED_DATA", "../shared/data"))
    parser.add_argument("--pairs", type=user_path, default=data / "verifier_dev.jsonl")
    parser.add_argument("--repeat", type=int, default=3, help="passes; medians count")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--completions", type=int, default=2048)
    parser.add_argument(
        "--only_ours", action="store_true", help="leave Math-Verify out"
    )


def run(arguments: argparse.Namespace) -> dict:
    """Measures; see the module's docstring."""
    rows = [json.loads(line) for line in arguments.pairs.read_text().splitlines()]
    rows = [r for r in rows if r.get("mode") == "answer" and r.get("kind") == "exact"]
    if not rows:
        raise ValueError(f"{arguments.pairs}: has no rows of mode answer, kind exact")
    is_equivalent(*_WARM_UP)
    result: dict = {"pairs": len(rows), "ours": _measure(rows, _ours, arguments.repeat)}
    result["symmetric"] = all(
        _ours(r["pred"], r["gold"]) == _ours(r["gold"], r["pred"]) for r in rows
    )
    result["reflexive"] = all(_ours(r["gold"], r["gold"]) for r in rows)
    if not arguments.only_ours:
        theirs = _math_verify()
        theirs(*_WARM_UP)
        result["math_verify"] = _measure(rows, theirs, arguments.repeat)
        result["times_faster"] = {
            name: group["pairs_per_second"]
            / result["math_verify"][name]["pairs_per_second"]
            for name, group in result["ours"].items()
        }
    result["pool"] = _measure_pool(arguments.workers, arguments.completions)
    return result


def _ours(predicted: str, gold: str) -> bool:
    return is_equivalent(predicted, gold, keep_golds=False)


def _math_verify() -> Callable[[str, str], bool]:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judge(predicted: str, gold: str) -> bool:
        # A gold is math; without delimiters Math-Verify would look for numbers only.
        return verify(parse(f"${gold}$"), parse(f"${predicted}$"))

    return judge


def _group(source: str) -> str:
    if source.startswith("hardverify"):
        return "hardverify"
    ordinary = ("mathcoder", "qwen2.5-math-outputs")
    return "model outputs" if source.startswith(ordinary) else "test suites"


def _measure(
    rows: list[dict], judge: Callable[[str, str], bool], repeat: int
) -> dict[str, dict]:
    seconds = np.zeros((repeat, len(rows)))
    verdicts = np.zeros(len(rows), bool)
    for of_pass in seconds:
        for index, row in enumerate(rows):
            started = time.perf_counter()
            verdicts[index] = judge(row["pred"], row["gold"])
            of_pass[index] = time.perf_counter() - started
    times = np.median(seconds, axis=0)
    labels = np.array([bool(row["label"]) for row in rows])
    groups = np.array([_group(row["source"]) for row in rows])
    members = {name: groups == name for name in dict.fromkeys(groups.tolist())}
    return {
        name: _summary(times[own], labels[own], verdicts[own])
        for name, own in ({"all": slice(None)} | members).items()
    }


def _summary(times: np.ndarray, labels: np.ndarray, verdicts: np.ndarray) -> dict:
    p50, p99 = np.quantile(times, (0.5, 0.99), method="higher")
    return {
        "rows": len(times),
        "accuracy": float(np.mean(labels == verdicts)),
        "false_positives": int(np.sum(verdicts & ~labels)),
        "negatives": int(np.sum(~labels)),
        "pairs_per_second": len(times) / float(times.sum()),
        "p50_ms": 1e3 * float(p50),
        "p99_ms": 1e3 * float(p99),
        "max_ms": 1e3 * float(times.max()),
    }


def _measure_pool(workers: int, completions: int) -> dict:
    """Replies of real length; one in a hundred has a hostile text in its box."""
    drawn = random.Random(0)
    hostile = ["9^{9^{9^9}}", "(" * 5_000, "1+" * 3_000 + "1", "99999!" * 9, "{" * 900]
    items = []
    for index in range(completions):
        group = index // 16
        gold = f"\\frac{{{group + 1}}}{{7}} + \\sqrt{{{group + 2}}}"
        answer = drawn.choice([gold, f"\\sqrt{{{group + 2}}} + {group + 1}/7", "3"])
        if index % 100 == 99:
            answer = drawn.choice(hostile)
        items.append((_FILLER * 170 + f"\\boxed{{{answer}}}", (gold,), _FILLER))
    with VerifierPool(workers) as pool:
        started = time.perf_counter()
        verdicts = pool.judge(items)
        seconds = time.perf_counter() - started
        counts = pool.counts
    return {
        "completions": completions,
        "characters": sum(len(text) for text, _, _ in items) // completions,
        "seconds": seconds,
        "correct": sum(verdict.correct is True for verdict in verdicts),
        "rules": {rule: n for rule, n in counts.items() if n},
    }
