"""Compares the arms of an ablation, and reports them as Markdown tables."""

import collections
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl.statistics import compare_seeds, holm, t_interval
from tools.ablation.study import Study
from tools.page import Section, with_interval
from tools.page import markdown as render
from tools.report.reading import Run, read_runs

END = 0.1  # figures "at the end" are means over this share of the steps
# Sections of the identity in manifest.json that should be equal in all runs.
_SHARED = ("base", "versions", "hosts")
_COST = ("tokens", "minutes")


class Figure(NamedTuple):
    """Describes how the report prints one figure, such as the accuracy."""

    title: str
    scale: float = 1.0
    form: str = ".3f"

    def text(self, value: float) -> str:
        return f"{value * self.scale:{self.form}}"


FIGURES: Mapping[str, Figure] = {
    "accuracy": Figure("accuracy, %", 100, ".1f"),
    "greedy_accuracy": Figure("greedy, %", 100, ".1f"),
    "entropy": Figure("entropy at the end, nats", 1, ".3f"),
    "length": Figure("length at the end, tokens", 1, ".1f"),
    "tokens": Figure("tokens sampled, millions", 1e-6, ".2f"),
    "minutes": Figure("minutes", 1 / 60, ".1f"),
}


def figures_of(run: Run) -> dict[str, float]:
    """Returns the figures that a run recorded, by key of `FIGURES`."""
    last = run.steps[-max(1, round(END * len(run.steps))) :]

    def mean(metric: str) -> float | None:
        values = [
            row[metric] for row in last if math.isfinite(row.get(metric, math.nan))
        ]
        return float(np.mean(values)) if values else None

    final: Mapping[str, Any] = run.summary["final"] or {}
    found = {
        "accuracy": final.get("accuracy"),
        "greedy_accuracy": final.get("greedy_accuracy"),
        "entropy": mean("policy/entropy"),
        "length": mean("length/all_mean"),
        "tokens": sum(row.get("sampling/tokens", 0) for row in run.steps),
        "minutes": run.summary["wall_seconds"],
    }
    return {name: float(x) for name, x in found.items() if x is not None}


def read_result(study: Study) -> dict[str, Any]:
    """Returns the data of the report: all runs, and a comparison of finished runs."""
    runs = []
    by_arm: dict[str, list[dict[str, float]]] = {arm: [] for arm in study.ablation.arms}
    identities = collections.defaultdict(set)  # values of all runs
    for run in study.runs:
        row: dict[str, Any] = {"arm": run.arm, "seed": run.seed}
        row["workdir"] = str(run.workdir)
        if run.summary:
            (finished,) = read_runs([run.workdir])
            row["figures"] = figures_of(finished)
            by_arm[run.arm].append(row["figures"])
            row |= {k: finished.summary[k] for k in ("steps", "ended", "unhealthy")}
            for section in _SHARED:
                for name, value in finished.manifest["identity"][section].items():
                    identities[f"{section}.{name}"].add(value)
        else:
            row["missing"] = run.last_line
        runs.append(row)
    return {
        "name": study.name,
        "question": study.ablation.question,
        "base": study.base,
        "overrides": study.overrides,
        "arms": study.ablation.arms,
        "seeds": study.seeds,
        "runs": runs,
        "differ": {
            key: len(values)
            for key, values in sorted(identities.items())
            if len(values) > 1
        },
        **compare(by_arm, reference=study.ablation.reference),
    }


def compare(
    runs: Mapping[str, Sequence[Mapping[str, float]]], *, reference: str
) -> dict[str, Any]:
    """Compares the arms with the reference arm; `runs` has the figures of their runs.

    Returns:
      A dict with `reference`, `cells[arm][figure]` and `noise[figure]`. Cells and noise
      without data are missing. A value that cannot be computed is None.

      A cell has the `mean` over `seeds` seeds, the mean's 95% `interval` (Student's t),
      and the `difference` from the reference arm. A difference has its `mean`, the
      `interval` and `p_value` of `compare_seeds`, and in `seeds` the smaller of the two
      arms' numbers of seeds. If there is a p-value, `p_adjusted` is its value after
      Holm's correction for the number of compared arms.

      Noise is the standard deviation between seeds, pooled over arms.
    """
    names = dict.fromkeys(n for arm in runs.values() for r in arm for n in r)
    cells: dict[str, dict[str, Any]] = {arm: {} for arm in runs}
    noise = {}
    for name in names:
        by_arm = {
            arm: [run[name] for run in of_arm if name in run]
            for arm, of_arm in runs.items()
        }
        first, tested = by_arm[reference], []
        for arm, values in by_arm.items():
            if not values:
                continue
            difference: dict[str, Any] | None = None
            if arm != reference and first:
                interval, p_value = compare_seeds(first, values) or (None, None)
                difference = {
                    "mean": float(np.mean(values) - np.mean(first)),
                    "interval": interval,
                    "p_value": p_value,
                    "seeds": min(len(values), len(first)),
                }
                tested += [difference] if p_value is not None else []
            cells[arm][name] = {
                "mean": float(np.mean(values)),
                "interval": t_interval(values),
                "seeds": len(values),
                "difference": difference,
            }
        adjusted = holm([found["p_value"] for found in tested])
        for found, p_value in zip(tested, adjusted, strict=True):
            found["p_adjusted"] = p_value
        several = [values for values in by_arm.values() if len(values) > 1]
        if several:
            squares = sum(float(np.var(values) * len(values)) for values in several)
            degrees = sum(len(values) - 1 for values in several)
            noise[name] = math.sqrt(squares / degrees)
    return {"reference": reference, "cells": cells, "noise": noise}


def markdown(result: Mapping[str, Any]) -> str:
    reference, by_arm = result["reference"], result["cells"]
    ended = [run for run in result["runs"] if "figures" in run]
    settings = ", ".join(f"{k}={v}" for k, v in result["overrides"].items())
    seeds = ", ".join(map(str, result["seeds"]))
    about = (
        f"{result['question']}\n\nBase `{result['base']}`"
        f"{f' with `{settings}`' if settings else ''}; seeds {seeds};"
        f" {len(ended)} of {len(result['runs'])} runs have ended."
    )
    figures = {n: f for n, f in FIGURES.items() if any(n in c for c in by_arm.values())}
    compared = {n: f for n, f in figures.items() if n not in _COST}
    counts = collections.Counter(run["arm"] for run in ended)
    means = []
    for arm, cells in by_arm.items():
        name = f"{arm} (reference)" if arm == reference else arm
        row = {f.title: _mean(f, cells.get(n), counts[arm]) for n, f in figures.items()}
        means.append({"arm": name, "seeds": str(counts[arm])} | row)
    about += " Values are means over seeds ± half of the 95% interval (Student's t)."
    report = [
        Section("", means if figures else [], about),
        _differences(result, compared),
    ]
    noise = [
        f"{figure.title}: the standard deviation between seeds, pooled over arms, is"
        f" {figure.text(result['noise'][name])}."
        for name, figure in compared.items()
        if name in result["noise"]
    ]
    return render(result["name"], report, *noise, *_remarks(result))


def _differences(result: Mapping[str, Any], figures: Mapping[str, Figure]) -> Section:
    reference = result["reference"]
    rows, seeds = [], [0]
    for arm, cells in result["cells"].items():
        found = {n: c["difference"] for n, c in cells.items() if c["difference"]}
        seeds += [entry["seeds"] for entry in found.values()]
        if arm != reference:
            texts = {f.title: _difference(f, found.get(n)) for n, f in figures.items()}
            rows.append({"arm": arm} | texts)
    note = "With one seed per arm, differences compare two runs, not two methods."
    if max(seeds) > 1:
        note = (
            "Brackets are 95% intervals by Student's t over the runs of both arms."
            " p-values are adjusted for the number of compared arms by Holm's method;"
            " intervals are not adjusted."
        )
    return Section(f"Against {reference}", *((rows, note) if max(seeds) else ([], "")))


def _mean(figure: Figure, cell: Mapping[str, Any] | None, runs: int) -> str:
    if cell is None:
        return "-"
    text = figure.text(cell["mean"])
    if cell["interval"]:
        low, high = cell["interval"]
        text += f" ± {figure.text((high - low) / 2)}"
    return text if cell["seeds"] == runs else f"{text} ({cell['seeds']})"


def _difference(figure: Figure, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    mean, interval = found["mean"], found["interval"]
    text = with_interval(mean, interval, f"+{figure.form}", figure.scale)
    return f"{text}, p {found['p_adjusted']:.2g}" if interval else text


def _remarks(result: Mapping[str, Any]) -> Iterable[str]:
    for run in result["runs"]:
        which = f"{run['arm']}, seed {run['seed']}"
        if run.get("missing"):
            yield f"{which} has not ended; its log ends with: {run['missing']}"
        for why in filter(None, (run.get("ended"), run.get("unhealthy"))):
            yield f"{which} ended after step {run['steps']}: {why}."
    for key, count in result["differ"].items():
        yield f"The runs differ in {key}, which has {count} different values."
