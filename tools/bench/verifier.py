"""Accuracy and speed of the verifier beside Math-Verify, and of the pool.

Pairs are rows {gold, pred, label, mode, kind, source}; only rows that compare two
answers exactly are measured. Both sides run in one process on the same pairs, one after
the other, and nothing is kept between pairs. Starting a process is no pair's time.
"""

import argparse
import json
import logging
import os
import pathlib
import random
import statistics
import time
from collections.abc import Callable

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
    result = {"pairs": len(rows), "ours": _measure(rows, _ours, arguments.repeat)}
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
    seconds: list[list[float]] = [[] for _ in rows]
    verdicts = [False] * len(rows)
    for _ in range(repeat):
        for index, row in enumerate(rows):
            started = time.perf_counter()
            verdicts[index] = bool(judge(row["pred"], row["gold"]))
            seconds[index].append(time.perf_counter() - started)
    times = [statistics.median(taken) for taken in seconds]
    groups = {"all": list(range(len(rows)))}
    for index, row in enumerate(rows):
        groups.setdefault(_group(row["source"]), []).append(index)
    return {
        name: _summary(
            [times[i] for i in members],
            [(rows[i]["label"], verdicts[i]) for i in members],
        )
        for name, members in groups.items()
    }


def _summary(times: list[float], outcomes: list[tuple[bool, bool]]) -> dict:
    ordered = sorted(times)
    negatives = [verdict for label, verdict in outcomes if not label]
    return {
        "rows": len(times),
        "accuracy": sum(a == b for a, b in outcomes) / len(outcomes),
        "false_positives": sum(negatives),
        "negatives": len(negatives),
        "pairs_per_second": len(times) / sum(times),
        "p50_ms": 1e3 * ordered[len(ordered) // 2],
        "p99_ms": 1e3 * ordered[int(0.99 * len(ordered))],
        "max_ms": 1e3 * ordered[-1],
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
