"""Compares evaluations with the first one, on the same problems.

An *arm* is one evaluation, or the evaluations of several models that differ only in
the training seed.
"""

import math
import pathlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from configs.schema import differences
from rl.evaluate import Scored, by_problem
from rl.statistics import (
    avg_at_k,
    cluster_sums,
    compare_seeds,
    difference_interval,
    t_interval,
)
from tools.evaluation.benchmarks import title
from tools.evaluation.files import Evaluation, read_evaluation
from tools.evaluation.report import difference, sampling
from tools.page import Section, markdown

Arm = Sequence[Evaluation]
METHODS, CHECKPOINTS = "the methods", "these checkpoints"
"""Values of `about`: what an interval and a p-value refer to; see `compare`."""
_DIFFERS = "**Sampling differs**, so the difference is not only due to the models. "
_JUDGED = (
    "**Judging differs**: give each folder to --rescore with the same --reward, then"
    " compare again. "
)
_MOST_FLIPS = 20  # limit on the lost and on the gained problem ids in the text
_ABOUT = {
    METHODS: "About the methods: 95% interval and p by Student's t over the models of"
    " several training seeds, on these problems.",
    CHECKPOINTS: "About these checkpoints: interval and p are **of these two"
    " checkpoints, not of two methods**. They are over problems or their templates"
    " (Student's t, paired sign-flip test) and ignore the noise of the training seed."
    " To compare methods, give evaluations of several seeds, separated by commas.",
}


def compare(arms: Sequence[Sequence[pathlib.Path]]) -> dict[str, Any]:
    """Compares each arm with the first; see `paired`.

    An arm is a list of evaluation folders. If both arms have several models, interval
    and p-value are computed over the models, and hold for the methods (`compare_seeds`
    in `rl.statistics`). Otherwise they hold only for these checkpoints.

    Raises:
      FileNotFoundError: a folder has no verdicts.jsonl.
      ValueError: the evaluations have no common benchmark, their problems differ, or
        the evaluations of one arm differ in samples, temperature or top-p.
    """
    found = [[read_evaluation(folder) for folder in arm] for arm in arms]
    every = [evaluation for arm in found for evaluation in arm]
    names = [n for n in every[0].correct if all(n in e.correct for e in every)]
    if not names:
        listed = " and ".join(f"{e.folder} ({', '.join(e.correct)})" for e in every)
        raise ValueError(
            f"--compare: {listed} have no benchmark in common; give others"
        )
    for evaluation in every:
        for name in names:
            _check_paired(name, every[0], evaluation)
    return {
        "benchmarks": names,
        "arms": [_arm(arm, names) for arm in found],
        "pairs": [_pair(found[0], arm, names) for arm in found[1:]],
    }


def compare_markdown(result: Mapping[str, Any]) -> str:
    first, *others = result["arms"]
    report = []
    for arm, pair in zip(others, result["pairs"], strict=True):
        rows = _comparison(pair)
        note = "" if pair["drawn_alike"] else _DIFFERS
        note += "" if pair["judged_alike"] else _JUDGED
        note += f"Sampling of the first: {first['drawn']}; of the second: "
        note += f"{arm['drawn']}."
        for name, part in pair["benchmarks"].items():
            for word in ("lost", "gained"):
                if part[word]:
                    more = len(part[word]) - _MOST_FLIPS
                    rest = f" and {more} more" if more > 0 else ""
                    ids = ", ".join(part[word][:_MOST_FLIPS]) + rest
                    note += f"\n\n{title(name)}, {word}: {ids}"
        report.append(Section(f"{arm['name']} against {first['name']}", rows, note))
        changed = [
            {"condition": key, "first": f"`{old}`", "second": f"`{new}`"}
            for key, old, new in pair["conditions"]
        ]
        report.append(Section("Conditions that differ", changed))
    seeds = [
        {
            "arm": arm["name"],
            "benchmark": title(name),
            "each seed, %": ", ".join(f"{100 * a:.1f}" for a in accuracies),
            "mean over seeds, 95% interval": f"{100 * low:.1f} to {100 * high:.1f}",
        }
        for arm in result["arms"]
        for name, accuracies in arm["accuracies"].items()
        for low, high in [t_interval(accuracies) or (0.0, 0.0)]
        if len(accuracies) > 1
    ]
    report.append(Section("Training seeds", seeds))
    about = dict.fromkeys(pair["pooled"]["about"] for pair in result["pairs"])
    return markdown("Comparison", report, *(_ABOUT[word] for word in about))


def _comparison(pair: Mapping[str, Any]) -> list[dict[str, str]]:
    parts = {title(name): part for name, part in pair["benchmarks"].items()}
    if len(parts) > 1:
        parts["all problems"] = pair["pooled"]
    return [
        {
            "benchmark": label,
            "problems": str(part["problems"]),
            "first, %": f"{100 * part['first']:.1f}",
            "second, %": f"{100 * part['second']:.1f}",
            "difference": difference(part),
            "p": f"{part['p_value']:.3g}",
            "about": part["about"],
            "lost": str(len(part["lost"])),
            "gained": str(len(part["gained"])),
        }
        for label, part in parts.items()
    ]


def _arm(arm: Arm, names: Sequence[str]) -> dict[str, Any]:
    folders = [str(evaluation.folder) for evaluation in arm]
    drawn = [sampling(e.conditions.get("drawing", {})) for e in arm]
    for folder, other in zip(folders, drawn, strict=True):
        if other != drawn[0]:
            raise ValueError(
                f"{folder}: sampling is {other!r}, but {drawn[0]!r} in {folders[0]};"
                " sample all evaluations of an arm in the same way"
            )
    models = [e.conditions.get("drawing", {}).get("checkpoint", e.folder) for e in arm]
    if len({*models}) < len(models):
        raise ValueError(
            f"--compare: {', '.join(folders)}: the same model twice; remove one"
        )
    accuracies = {name: _accuracies(arm, name, arm[0].correct[name]) for name in names}
    return {
        "name": ", ".join(folders),
        "folders": folders,
        "drawn": drawn[0],
        "accuracies": {n: of.mean(axis=1).tolist() for n, of in accuracies.items()},
    }


def _pair(first: Arm, second: Arm, names: Sequence[str]) -> dict[str, Any]:
    drawings = [arm[0].conditions.get("drawing", {}) for arm in (first, second)]
    judged = [e.judged for e in (*first, *second) if e.judged]
    parts, ids, units = {}, [], []
    for name in names:
        own = [*first[0].correct[name]]
        clusters = first[0].clusters.get(name, {})
        # Without templates, the problems are the independent units.
        grouped = [*map(clusters.get, own)] if len(clusters) == len(own) else own
        both = [_accuracies(arm, name, own) for arm in (first, second)]
        parts[name] = both, _of_models(own, both, grouped)
        ids += [f"{name}/{id}" for id in own]
        units += [(name, unit) for unit in grouped]
    every = zip(*(both for both, _ in parts.values()), strict=True)
    pooled = [np.concatenate(of_arm, axis=1) for of_arm in every]
    return {
        "drawn_alike": len({*map(sampling, drawings)}) == 1,
        "judged_alike": all(each == judged[0] for each in judged),
        "conditions": [list(entry) for entry in differences(*drawings)],
        "benchmarks": {name: result for name, (_, result) in parts.items()},
        "pooled": _of_models(ids, pooled, units),
    }


def _of_models(
    ids: Sequence[str], arms: Sequence[np.ndarray], clusters: Sequence[Hashable]
) -> dict[str, Any]:
    """Compares two arms by their accuracies, each `[models, problems]`."""
    a, b = arms
    result = paired(ids, a.mean(axis=0), b.mean(axis=0), clusters)
    if found := compare_seeds(a.mean(axis=1).tolist(), b.mean(axis=1).tolist()):
        result["difference_interval"], result["p_value"] = found
        result["about"] = METHODS
    return result


def _accuracies(arm: Arm, name: str, ids: Iterable[str]) -> np.ndarray:
    """Returns the share of correct completions, `[models, problems]`."""
    return np.array([avg_at_k([e.correct[name][id] for id in ids]) for e in arm])


def against_original(
    original: Sequence[Scored], perturbed: Sequence[Scored]
) -> dict[str, Any]:
    """Compares a perturbed set with its original problems, which have the same ids."""
    known, other = by_problem(original), by_problem(perturbed)
    ids = [id for id in other if id in known]
    rights = [[[s.correct for s in of[id]] for id in ids] for of in (known, other)]
    return paired(ids, avg_at_k(rights[0]), avg_at_k(rights[1]))


def paired(
    ids: Sequence[str],
    a: np.ndarray,
    b: np.ndarray,
    clusters: Sequence[Hashable] | None = None,
) -> dict[str, Any]:
    """Compares accuracies `[problems]` of two arms; differences are second minus first.

    The interval (Student's t) and the p-value (`sign_flip_p_value`) are over problems.
    They are over templates if `clusters` has the template of each problem. Problems
    with an accuracy above 0.5 only in the first arm are `lost`. Those with an accuracy
    above 0.5 only in the second arm are `gained`.
    """
    flipped = list(zip(ids, a > 0.5, b > 0.5, strict=True))
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


def sign_flip_p_value(differences: np.ndarray, *, most_sums: int = 2**21) -> float:
    """Returns the two-sided p-value of Fisher's randomization test of paired scores.

    The test adds up `differences [problems]` with all possible choices of their signs.
    The p-value is the share of sums at least as far from 0 as the observed sum. With
    one completion per problem, the test equals McNemar's exact test. If more than
    `most_sums` sums are possible, differences are rounded to 1/65,536 of their sum.
    """
    differences = np.asarray(differences, np.float64)
    if np.count_nonzero(differences) < 2:
        return 1.0
    total = float(np.abs(differences).sum())
    fractions = (Fraction(d).limit_denominator(10_000) for d in differences)
    unit: float = min(math.lcm(*{f.denominator for f in fractions}), 2**40)
    if 2 * unit * total + 1 > most_sums:
        unit = 2**16 / total
    whole = np.rint(differences * unit).astype(int)
    chance = np.ones(1)  # probability of each sum so far, in ascending order
    for size in abs(whole):
        chance = (np.pad(chance, (0, 2 * size)) + np.pad(chance, (2 * size, 0))) / 2
    sums = np.abs(np.arange(len(chance)) - abs(whole).sum())
    return float(min(1.0, chance[sums >= abs(whole.sum())].sum()))


def _check_paired(name: str, first: Evaluation, second: Evaluation) -> None:
    lonely = sorted(first.correct[name].keys() ^ second.correct[name].keys())
    if lonely:
        where = first if lonely[0] in first.correct[name] else second
        raise ValueError(
            f"{name}: problems in only one evaluation: {len(lonely)}, such as"
            f" {lonely[0]} in {where.folder}; evaluate {first.folder} and"
            f" {second.folder} on the same problems"
        )
    asked = [e.conditions.get("benchmarks", {}).get(name, {}) for e in (first, second)]
    if len({facts["sha256"] for facts in asked if "sha256" in facts}) > 1:
        raise ValueError(
            f"{name}: {first.folder} and {second.folder} have different problems or"
            " answers with the same ids; evaluate both with the same --data_dir"
        )
