"""Several evaluations of the same problems against one of them, side by side.

An *arm* is what is compared: one evaluation, or those of models that differ in their
training's seed alone.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl.evaluate import Scored, by_problem
from rl.files import markdown_table
from rl.statistics import bootstrap_interval
from tools.evaluation.benchmarks import title
from tools.evaluation.files import Judged, differences, read_conditions, read_verdicts
from tools.evaluation.paired import seed_spread, sign_flip_p_value
from tools.evaluation.report import drawing

Arm = Sequence[pathlib.Path]
Verdicts = Mapping[str, Mapping[str, Sequence[Judged]]]


def compare(arms: Sequence[Arm]) -> dict[str, Any]:
    """Pairs judged evaluations with the first arm's, problem by problem.

    A problem counts as solved when more than half of its completions are right: with
    one completion each, when that one is. The flips speak of solved problems; the
    difference, its interval and its p-value all speak of accuracy: the interval is a
    bootstrap over the paired problems, the p-value the paired sign-flip permutation
    test (`tools.evaluation.paired.sign_flip_p_value`).

    Returns:
      `arms`: name, how it was drawn, and per benchmark what is due to training seeds
      and what to problems. `pairs`, one for each arm but the first: `conditions` that
      were not the same, as (key, first, second); `benchmarks`: by name, the
      accuracies, the difference (second minus first), its p-value, the flips; and
      `pooled`: all problems of all benchmarks, each counting alike.

    Raises:
      FileNotFoundError: a folder that was never judged.
      ValueError: no benchmark in common, problems that not all of them have, or an
        arm whose evaluations were not drawn alike.
    """
    told = [[read_verdicts(folder) for folder in arm] for arm in arms]
    names = [name for name in told[0][0] if all(name in v for arm in told for v in arm)]
    if not names:
        listed = " and ".join(
            f"{folder} ({', '.join(verdicts)})"
            for arm, of_arm in zip(arms, told, strict=True)
            for folder, verdicts in zip(arm, of_arm, strict=True)
        )
        raise ValueError(f"{listed} have no benchmark in common")
    for arm, of_arm in zip(arms, told, strict=True):
        for folder, verdicts in zip(arm, of_arm, strict=True):
            for name in names:
                _check_paired(name, arms[0][0], told[0][0], folder, verdicts)
    drawn = [_drawn_alike(arm) for arm in arms]
    return {
        "benchmarks": names,
        "arms": [
            {
                "name": _name(arm),
                "folders": [str(folder) for folder in arm],
                "drawn": words,
                "spread": {name: _spread(of_arm, name) for name in names},
            }
            for arm, of_arm, words in zip(arms, told, drawn, strict=True)
        ],
        "pairs": [
            _pair(arms[0], told[0], arm, of_arm, names, drawn[0] == words)
            for arm, of_arm, words in list(zip(arms, told, drawn, strict=True))[1:]
        ],
    }


def _drawn_alike(arm: Arm) -> str:
    """How the evaluations of an arm were drawn, in words."""
    words = [drawing((read_conditions(folder) or {}).get("drawing")) for folder in arm]
    for folder, its in zip(arm, words, strict=True):
        if its != words[0]:
            raise ValueError(
                f"{folder}: drawn {its}, and {arm[0]}, of the same arm, {words[0]}"
            )
    return words[0]


def compare_markdown(result: Mapping[str, Any], *, flips: int = 20) -> str:
    """The comparison as tables; at most `flips` ids each way for each benchmark."""
    first = result["arms"][0]
    lines = []
    for arm, pair in zip(result["arms"][1:], result["pairs"], strict=True):
        lines += [f"# {arm['name']} against {first['name']}", ""]
        if not pair["drawn_alike"]:
            lines += [
                f"**Not drawn alike**: first {first['drawn']}, second {arm['drawn']}. "
                "The difference is not the model's alone.",
                "",
            ]
        columns = ["benchmark", "problems", f"first, % ({first['drawn']})"]
        columns += [f"second, % ({arm['drawn']})", "difference", "p", "lost", "gained"]
        rows = [_row(title(name), part) for name, part in pair["benchmarks"].items()]
        if len(rows) > 1:
            rows.append(_row("all problems", pair["pooled"]))
        lines += markdown_table(columns, rows)
        for name, part in pair["benchmarks"].items():
            for word in ("lost", "gained"):
                if part[word]:
                    shown = ", ".join(part[word][:flips])
                    more = len(part[word]) - flips
                    rest = f" and {more} more" if more > 0 else ""
                    lines += [f"{title(name)}, {word}: {shown}{rest}", ""]
        if pair["conditions"]:
            lines += markdown_table(
                ["condition", "first", "second"],
                [[key, f"`{old}`", f"`{new}`"] for key, old, new in pair["conditions"]],
            )
    lines += _seeds(result)
    lines += [
        "Brackets are 95% intervals over problems; p is the paired sign-flip "
        "permutation test of the same difference.",
        "",
    ]
    return "\n".join(lines)


def _row(label: str, part: Mapping[str, Any]) -> list[str]:
    low, high = (f"{100 * edge:+.1f}" for edge in part["difference_interval"])
    return [
        label,
        str(part["problems"]),
        *(f"{100 * part[key]:.1f}" for key in ("first", "second")),
        f"{100 * part['difference']:+.1f} [{low}, {high}]",
        f"{part['p_value']:.3g}",
        *(str(len(part[word])) for word in ("lost", "gained")),
    ]


def _seeds(result: Mapping[str, Any]) -> list[str]:
    """What training seeds do to each arm that has several."""
    rows = [
        [
            arm["name"],
            title(name),
            ", ".join(f"{100 * a:.1f}" for a in spread["accuracies"]),
            "[{:.1f}, {:.1f}]".format(*(100 * edge for edge in spread["interval"])),
            _points(spread["seed_sd"]),
            _points(spread["drawing_sd"]),
            _points(spread["problem_se"]),
        ]
        for arm in result["arms"]
        for name, spread in arm["spread"].items()
        if spread["interval"]
    ]
    columns = ["arm", "benchmark", "each seed, %", "mean over seeds, 95%"]
    columns += ["between seeds, sd", "of drawing, sd", "over problems, se"]
    return ["## Training seeds", "", *markdown_table(columns, rows)] if rows else []


def _points(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f}"


def _name(arm: Arm) -> str:
    return ", ".join(str(folder) for folder in arm)


def _in_order(verdicts: Verdicts, name: str, ids: Sequence[str]) -> np.ndarray:
    rows = (verdicts[name][id] for id in ids)
    return np.array([np.mean([j.correct for j in row]) for row in rows])


def _spread(of_arm: Sequence[Verdicts], name: str) -> dict[str, Any]:
    ids = of_arm[0][name]
    return seed_spread(
        [[[j.correct for j in v[name][id]] for id in ids] for v in of_arm]
    )


def _pair(
    first: Arm,
    ours: Sequence[Verdicts],
    second: Arm,
    theirs: Sequence[Verdicts],
    names: Sequence[str],
    drawn_alike: bool,
) -> dict[str, Any]:
    parts, all_ids, all_a, all_b = {}, [], [], []
    for name in names:
        ids = list(ours[0][name])
        a = np.mean([_in_order(v, name, ids) for v in ours], axis=0)
        b = np.mean([_in_order(v, name, ids) for v in theirs], axis=0)
        parts[name] = _paired(ids, a, b)
        all_ids += [f"{name}/{id}" for id in ids]
        all_a.append(a)
        all_b.append(b)
    return {
        "drawn_alike": drawn_alike,
        "conditions": [
            list(entry)
            for entry in differences(
                (read_conditions(first[0]) or {}).get("drawing"),
                (read_conditions(second[0]) or {}).get("drawing"),
            )
        ],
        "benchmarks": parts,
        "pooled": _paired(all_ids, np.concatenate(all_a), np.concatenate(all_b)),
    }


def beside(original: Sequence[Scored], perturbed: Sequence[Scored]) -> dict[str, Any]:
    """A set with other numbers against those of its problems as they are known."""
    known, other = by_problem(original), by_problem(perturbed)
    ids = [id for id in other if id in known]
    first, second = (
        np.array([np.mean([s.correct for s in of[id]]) for id in ids])
        for of in (known, other)
    )
    return _paired(ids, first, second)


def _paired(ids: Sequence[str], a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """How accuracies `[problems]` of the same problems differ, second minus first."""
    solved_a, solved_b = a > 0.5, b > 0.5
    flipped = list(zip(ids, solved_a, solved_b, strict=True))
    return {
        "problems": len(ids),
        "first": float(a.mean()),
        "second": float(b.mean()),
        "difference": float((b - a).mean()),
        "difference_interval": bootstrap_interval(b - a),
        "p_value": sign_flip_p_value(b - a),
        "lost": [id for id, x, y in flipped if x > y],
        "gained": [id for id, x, y in flipped if y > x],
    }


def _check_paired(
    name: str,
    first: pathlib.Path,
    ours: Verdicts,
    second: pathlib.Path,
    theirs: Verdicts,
) -> None:
    lonely = sorted(ours[name].keys() ^ theirs[name].keys())
    if lonely:
        where = first if lonely[0] in ours[name] else second
        raise ValueError(
            f"{name}: {len(lonely)} problems cannot be paired, {lonely[0]} is only in "
            f"{where}"
        )
    asked = [
        (read_conditions(folder) or {}).get("benchmarks", {}).get(name, {})
        for folder in (first, second)
    ]
    hashes = {facts["sha256"] for facts in asked if "sha256" in facts}
    if len(hashes) > 1:
        raise ValueError(
            f"{name}: {first} and {second} were asked other copies of it, with other"
            " problems or answers under the same ids"
        )
