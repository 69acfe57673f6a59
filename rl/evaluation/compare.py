"""Two evaluations of the same problems, side by side."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl.benchmarks import title
from rl.evaluation.files import differences, read_conditions, read_verdicts
from rl.statistics import bootstrap_interval, mcnemar


def compare(first: pathlib.Path, second: pathlib.Path) -> dict[str, Any]:
    """Pairs two judged evaluations, problem by problem.

    A problem counts as solved when more than half of its completions are right: with
    one completion each, when that one is. McNemar's test and the flips speak of solved
    problems; the difference speaks of accuracy, its interval is a bootstrap over the
    paired problems.

    Returns:
      `conditions`: what was not the same, as (key, first, second); `benchmarks`: by
      name, the accuracies, the difference (second minus first), the test, the flips.

    Raises:
      FileNotFoundError: a folder that was never judged.
      ValueError: no benchmark in common, or problems that only one of them has.
    """
    ours, theirs = read_verdicts(first), read_verdicts(second)
    common = [name for name in ours if name in theirs]
    if not common:
        raise ValueError(
            f"{first} ({', '.join(ours)}) and {second} ({', '.join(theirs)}) have no "
            "benchmark in common"
        )
    return {
        "first": str(first),
        "second": str(second),
        "conditions": [
            list(entry)
            for entry in differences(
                (read_conditions(first) or {}).get("drawing"),
                (read_conditions(second) or {}).get("drawing"),
            )
        ],
        "benchmarks": {
            name: _paired(name, ours[name], theirs[name], first, second)
            for name in common
        },
    }


def compare_markdown(result: Mapping[str, Any], *, flips: int = 20) -> str:
    """The comparison as tables; at most `flips` ids each way for each benchmark."""
    lines = [
        f"# {result['second']} against {result['first']}",
        "",
        "| benchmark | problems | first, % | second, % | difference | McNemar p | lost "
        "| gained |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, pair in result["benchmarks"].items():
        low, high = pair["difference_interval"]
        lines.append(
            f"| {title(name)} | {pair['problems']} | {100 * pair['first']:.1f} "
            f"| {100 * pair['second']:.1f} | {100 * pair['difference']:+.1f} "
            f"[{100 * low:+.1f}, {100 * high:+.1f}] | {pair['p_value']:.3g} "
            f"| {len(pair['lost'])} | {len(pair['gained'])} |"
        )
    for name, pair in result["benchmarks"].items():
        for word in ("lost", "gained"):
            if pair[word]:
                shown = ", ".join(pair[word][:flips])
                more = len(pair[word]) - flips
                rest = f" and {more} more" if more > 0 else ""
                lines += ["", f"{title(name)}, {word}: {shown}{rest}"]
    if result["conditions"]:
        lines += ["", "| condition | first | second |", "| --- | --- | --- |"]
        lines += [
            f"| {key} | `{old}` | `{new}` |" for key, old, new in result["conditions"]
        ]
    return "\n".join(lines) + "\n"


def _paired(
    name: str,
    ours: Mapping[str, list[bool]],
    theirs: Mapping[str, list[bool]],
    first: pathlib.Path,
    second: pathlib.Path,
) -> dict[str, Any]:
    lonely = sorted(ours.keys() ^ theirs.keys())
    if lonely:
        where = first if lonely[0] in ours else second
        raise ValueError(
            f"{name}: {len(lonely)} problems cannot be paired, {lonely[0]} is only in "
            f"{where}"
        )
    ids = list(ours)
    a = np.array([np.mean(ours[id]) for id in ids])
    b = np.array([np.mean(theirs[id]) for id in ids])
    solved_a, solved_b = a > 0.5, b > 0.5
    return {
        "problems": len(ids),
        "first": float(a.mean()),
        "second": float(b.mean()),
        "difference": float((b - a).mean()),
        "difference_interval": bootstrap_interval(b - a),
        "p_value": mcnemar(solved_a, solved_b).p_value,
        "lost": [id for id, x, y in zip(ids, solved_a, solved_b, strict=True) if x > y],
        "gained": [
            id for id, x, y in zip(ids, solved_a, solved_b, strict=True) if y > x
        ],
    }
