"""Measures the verifier on the shared sets, and records verdicts for comparison.

python -m tests.rl.verifier.measure                   # one line a measure
python -m tests.rl.verifier.measure --record FILE     # every verdict, one a line
python -m tests.rl.verifier.measure --compare A B     # verdicts that differ
"""

import argparse
import collections
import json
import os
import pathlib
import re
import time
from collections.abc import Iterator

from rl.verifier import is_equivalent, judge, self_check

_DATA = pathlib.Path(os.environ.get("SHARED_DATA", "../shared/data"))
_FORMULA = re.compile(r"(?<![\\$])\$([^$]{1,200})\$(?!\$)")
_GOLDS = ("math12k", "deepscaler_levels")


def rows(path: pathlib.Path) -> list[dict]:
    """Reads a file of JSON lines."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def cases() -> list[dict]:
    """Returns the shared cases: answers with golds, problems and right verdicts."""
    return rows(_DATA.parent / "verifier_cases.jsonl")


def golds(most: int = 20_000) -> list[dict]:
    """Returns training rows with a gold: every second, third, ... of the files."""
    found = [r for name in _GOLDS for r in rows(_DATA / "train" / f"{name}.jsonl")]
    found = [row for row in found if row["answer"]]
    return found[:: max(1, len(found) // most)][:most]


def verdicts() -> Iterator[tuple[str, object]]:
    """Yields a name and a verdict for every fixed pair."""
    for i, row in enumerate(cases()):
        verdict = judge(row["completion"], row["gold"], row["problem"])
        yield f"case {i}", [verdict.correct, verdict.rule]
    for row in rows(_DATA / "verifier_dev.jsonl"):
        yield f"dev {row['id']}", _dev(row)
    taken = golds()
    order = sorted(range(len(taken)), key=lambda i: taken[i]["answer"][::-1])
    near = dict(zip(order, order[1:] + order[:1], strict=True))
    for i, row in enumerate(taken):
        gold, problem = row["answer"], row["problem"]
        yield f"gold {i}", self_check(gold)
        answers = [taken[near[i]]["answer"], gold.replace("{", "{ ") + " "]
        answers += _FORMULA.findall(row.get("solution") or "")[-2:]
        answers += _FORMULA.findall(problem)[-1:]
        for n, answer in enumerate(answers):
            verdict = judge(rf"\boxed{{{answer}}}", gold, problem)
            yield f"pair {i}.{n}", [verdict.correct, verdict.rule]


def _dev(row: dict) -> bool:
    if row["mode"] == "answer":
        return is_equivalent(row["pred"], row["gold"])
    return judge(row["pred"], row["gold"]).correct is True


def report() -> dict:
    """Computes every measure."""
    found: dict = {}
    right: collections.Counter = collections.Counter()
    total: collections.Counter = collections.Counter()
    false: collections.Counter = collections.Counter()
    costs = []
    for row in cases():
        start = time.thread_time()
        verdict = judge(row["completion"], row["gold"], row["problem"])
        costs.append(time.thread_time() - start)
        kind = "convention" if row["convention"] else row["kind"]
        total[kind] += 1
        right[kind] += (verdict.correct is True) == row["right"]
        false[kind] += verdict.correct is True and not row["right"]
    fixed = total.total() - total["convention"]
    found["cases"] = fixed
    found["cases right"] = (right.total() - right["convention"]) / fixed
    found["cases by kind"] = {
        kind: f"{right[kind]} of {n}, {false[kind]} credited wrongly"
        for kind, n in total.most_common()
        if right[kind] < n
    }
    dev = [row for row in rows(_DATA / "verifier_dev.jsonl") if row["kind"] == "exact"]
    found["dev right"] = sum(_dev(row) == bool(row["label"]) for row in dev) / len(dev)
    found["dev credited wrongly"] = sum(_dev(r) and not r["label"] for r in dev)
    found["golds readable"] = sum(self_check(r["answer"]) is None for r in golds())
    costs.sort()
    found["ms p99, most"] = [round(1e3 * costs[i], 2) for i in (-len(costs) // 100, -1)]
    return found


def main() -> None:
    """Runs what the flags ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--compare", nargs=2, metavar="FILE")
    flags = parser.parse_args()
    if flags.record:
        with open(flags.record, "w", encoding="utf-8") as file:
            for name, verdict in verdicts():
                print(json.dumps([name, verdict]), file=file)
    elif flags.compare:
        before, after = (dict(map(json.loads, open(p))) for p in flags.compare)
        differ = [name for name in before if before[name] != after.get(name)]
        for name in differ:
            print(name, before[name], "->", after.get(name))
        print(f"{len(differ)} of {len(before)} verdicts differ")
    else:
        print(json.dumps(report(), indent=1))


if __name__ == "__main__":
    main()
