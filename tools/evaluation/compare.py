"""Several evaluations of the same problems against one of them, side by side.

An *arm* is what is compared: one evaluation, or those of models that differ in their
training's seed alone.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import differences
from rl.evaluate import Scored, by_problem
from rl.files import markdown_table
from rl.statistics import (
    cluster_sums,
    compare_seeds,
    difference_interval,
    t_interval,
)
from tools.evaluation.benchmarks import title
from tools.evaluation.files import Evaluation, read_evaluation
from tools.evaluation.paired import sign_flip_p_value
from tools.evaluation.report import difference, drawing

Arm = Sequence[Evaluation]
METHODS, CHECKPOINTS = "the methods", "these checkpoints"
"""What an interval and a p-value are about; see `compare`."""
_COLUMNS = ("difference", "p", "about", "lost", "gained")


def compare(arms: Sequence[Sequence[pathlib.Path]]) -> dict[str, Any]:
    """Pairs judged evaluations with the first arm's, problem by problem.

    A problem counts as solved when more than half of its completions are right: with
    one completion each, when that one is. The flips speak of solved problems; the
    difference, its interval and its p-value all speak of accuracy. Where both arms have
    several models, that differ in their training's seed, interval and p are about the
    methods: Student's t over the models (`rl.statistics.compare_seeds`). Where an arm
    has one, they are about these checkpoints alone: Student's t and the sign-flip
    permutation test (`sign_flip_p_value`) over problems or their templates.

    Returns:
      `arms`: name, how it was drawn, and each model's accuracy by benchmark. `pairs`,
      one for each arm but the first: `conditions` that were not the same, as (key,
      first, second); `benchmarks`: by name, the accuracies, the difference (second
      minus first), its interval and p-value, what both are `about`, the flips; and
      `pooled`: all problems of all benchmarks, each counting alike.

    Raises:
      FileNotFoundError: a folder that was never judged.
      ValueError: no benchmark in common, problems that not all of them have, or an
        arm whose evaluations were not drawn alike.
    """
    first, *others = [[read_evaluation(folder) for folder in arm] for arm in arms]
    every = [evaluation for arm in (first, *others) for evaluation in arm]
    names = [n for n in every[0].verdicts if all(n in e.verdicts for e in every)]
    if not names:
        listed = " and ".join(f"{e.folder} ({', '.join(e.verdicts)})" for e in every)
        raise ValueError(f"{listed} have no benchmark in common")
    for evaluation in every:
        for name in names:
            _check_paired(name, every[0], evaluation)
    return {
        "benchmarks": names,
        "arms": [
            {
                "name": ", ".join(str(e.folder) for e in arm),
                "folders": [str(e.folder) for e in arm],
                "drawn": _drawn(arm),
                "accuracies": {
                    n: _accuracies(arm, n, list(arm[0].verdicts[n]))
                    .mean(axis=1)
                    .tolist()
                    for n in names
                },
            }
            for arm in (first, *others)
        ],
        "pairs": [_pair(first, arm, names) for arm in others],
    }


def _drawn(arm: Arm) -> str:
    """How the evaluations of an arm were drawn, in words."""
    words = [drawing(e.conditions.get("drawing", {})) for e in arm]
    for evaluation, its in zip(arm, words, strict=True):
        if its != words[0]:
            raise ValueError(
                f"{evaluation.folder}: drawn {its}, and {arm[0].folder}, of the same"
                f" arm, {words[0]}"
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
        columns += [f"second, % ({arm['drawn']})", *_COLUMNS]
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
    about = {pair["pooled"]["about"] for pair in result["pairs"]}
    if METHODS in about:
        lines += [
            "About the methods: 95% interval and p by Student's t over the models of "
            "several training seeds, on these problems.",
            "",
        ]
    if CHECKPOINTS in about:
        lines += [
            "About these checkpoints: interval and p are **of these two checkpoints, "
            "not of two methods**. They are over problems or their templates (Student's"
            " t, paired sign-flip test) and ignore the noise of the training seed; give"
            " evaluations of several seeds, separated by commas.",
            "",
        ]
    return "\n".join(lines)


def _row(label: str, part: Mapping[str, Any]) -> list[str]:
    first = f"{100 * part['first']:.1f}"
    return [label, str(part["problems"]), first, *second_figures(part)]


def second_figures(part: Mapping[str, Any]) -> list[str]:
    """The second's accuracy, the difference, its p, what both are about, flips."""
    return [
        f"{100 * part['second']:.1f}",
        difference(part),
        f"{part['p_value']:.3g}",
        part["about"],
        *(str(len(part[word])) for word in ("lost", "gained")),
    ]


def _seeds(result: Mapping[str, Any]) -> list[str]:
    """Returns a table of the accuracies of each arm that has several models."""
    rows = [
        [
            arm["name"],
            title(name),
            ", ".join(f"{100 * a:.1f}" for a in accuracies),
            f"{100 * low:.1f} to {100 * high:.1f}",
        ]
        for arm in result["arms"]
        for name, accuracies in arm["accuracies"].items()
        for low, high in [t_interval(accuracies) or (0.0, 0.0)]
        if len(accuracies) > 1
    ]
    columns = ["arm", "benchmark", "each seed, %", "mean over seeds, 95% interval"]
    return ["## Training seeds", "", *markdown_table(columns, rows)] if rows else []


def _pair(first: Arm, second: Arm, names: Sequence[str]) -> dict[str, Any]:
    ids = {name: list(first[0].verdicts[name]) for name in names}
    a, b = ({n: _accuracies(arm, n, ids[n]) for n in names} for arm in (first, second))
    clusters = {name: _clusters(first[0], name) for name in names}
    every = [f"{n}/{key}" for n in names for key in clusters[n] or ids[n]]
    said = [arm[0].conditions.get("drawing", {}) for arm in (first, second)]
    return {
        "drawn_alike": _drawn(first) == _drawn(second),
        "conditions": [list(entry) for entry in differences(*said)],
        "benchmarks": {
            name: _of_models(ids[name], a[name], b[name], clusters[name])
            for name in names
        },
        "pooled": _of_models(
            [f"{name}/{id}" for name in names for id in ids[name]],
            np.concatenate([*a.values()], axis=1),
            np.concatenate([*b.values()], axis=1),
            every if any(clusters.values()) else None,
        ),
    }


def _of_models(
    ids: Sequence[str],
    a: np.ndarray,
    b: np.ndarray,
    clusters: Sequence[str] | None,
) -> dict[str, Any]:
    """Compares accuracies `[models, problems]`: methods where both have several."""
    result = _paired(ids, a.mean(axis=0), b.mean(axis=0), clusters)
    if found := compare_seeds(a.mean(axis=1).tolist(), b.mean(axis=1).tolist()):
        result["interval_over_problems"] = result["difference_interval"]
        result["difference_interval"], result["p_value"] = found
        result["about"] = METHODS
    return result


def _clusters(evaluation: Evaluation, name: str) -> list[str] | None:
    found = [row[0].cluster for row in evaluation.verdicts[name].values()]
    named = [cluster for cluster in found if cluster is not None]
    return named if len(named) == len(found) else None


def _accuracies(arm: Arm, name: str, ids: Sequence[str]) -> np.ndarray:
    """Returns the share of right completions, `[models, problems]`."""
    return np.array(
        [
            [np.mean([j.correct for j in e.verdicts[name][id]]) for id in ids]
            for e in arm
        ]
    )


def beside(original: Sequence[Scored], perturbed: Sequence[Scored]) -> dict[str, Any]:
    """A set with other numbers against those of its problems as they are known."""
    known, other = by_problem(original), by_problem(perturbed)
    ids = [id for id in other if id in known]
    first, second = (
        np.array([np.mean([s.correct for s in of[id]]) for id in ids])
        for of in (known, other)
    )
    return _paired(ids, first, second)


def _paired(
    ids: Sequence[str],
    a: np.ndarray,
    b: np.ndarray,
    clusters: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compares accuracies `[problems]` of the same problems, second minus first."""
    solved_a, solved_b = a > 0.5, b > 0.5
    flipped = list(zip(ids, solved_a, solved_b, strict=True))
    return {
        "problems": len(ids),
        "first": float(a.mean()),
        "second": float(b.mean()),
        "difference": float((b - a).mean()),
        "difference_interval": difference_interval(b - a, clusters),
        "p_value": sign_flip_p_value(cluster_sums(b - a, clusters)),
        "about": CHECKPOINTS,
        "lost": [id for id, x, y in flipped if x > y],
        "gained": [id for id, x, y in flipped if y > x],
    }


def _check_paired(name: str, first: Evaluation, second: Evaluation) -> None:
    lonely = sorted(first.verdicts[name].keys() ^ second.verdicts[name].keys())
    if lonely:
        where = first if lonely[0] in first.verdicts[name] else second
        raise ValueError(
            f"{name}: {len(lonely)} problems cannot be paired, {lonely[0]} is only in "
            f"{where.folder}"
        )
    asked = [e.conditions.get("benchmarks", {}).get(name, {}) for e in (first, second)]
    if len({facts["sha256"] for facts in asked if "sha256" in facts}) > 1:
        raise ValueError(
            f"{name}: {first.folder} and {second.folder} were asked other copies of it,"
            " with other problems or answers under the same ids"
        )
