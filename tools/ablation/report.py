"""An ablation's result: a dict for other programs, and a page of Markdown."""

import collections
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rl.files import markdown_table
from tools.ablation.compare import Cell, Comparison, compare, least_p_value
from tools.ablation.figures import FIGURES, Figure, read_figures
from tools.ablation.study import Run, Study

# Parts of a run's identity that all runs should share; `rl.workdir.manifest.Identity`.
_SHARED = ("base", "code", "versions", "hosts")
_COST = ("tokens", "minutes")


def read_result(
    study: Study, *, curve: str, against: str
) -> tuple[dict[str, Any], Comparison]:
    """Reads what there is of a study's runs.

    Args:
      study: the ablation; any number of its runs may have ended.
      curve, against: see `read_figures`.

    Returns:
      What NAME.json holds, and of it what is told by arm and figure.

    Raises:
      ValueError: a workdir holds another run, or a damaged file.
    """
    runs, by_arm = [], {arm: {} for arm in study.ablation.arms}
    for run in study.runs:
        row: dict[str, Any] = {"arm": run.arm, "seed": run.seed}
        row["workdir"] = str(run.workdir)
        if summary := run.summary:
            figures = read_figures(run.workdir, curve=curve, against=against)
            by_arm[run.arm][run.seed] = figures
            row |= {key: summary[key] for key in ("steps", "ended", "unhealthy")}
            row["figures"] = figures
        else:
            row["missing"] = run.said
        runs.append(row)
    comparison = compare(by_arm, reference=study.ablation.reference)
    result = {
        "name": study.name,
        "question": study.question,
        "base": study.base,
        "overrides": study.overrides,
        "arms": study.ablation.arms,
        "seeds": study.seeds,
        "curve": curve,
        "against": against,
        "runs": runs,
        "differ": _differing(run for run in study.distinct if run.summary),
        **comparison.record(),
    }
    return result, comparison


def markdown(result: Mapping[str, Any], comparison: Comparison) -> str:
    """The page of a result."""
    reference, runs = comparison.reference, result["runs"]
    ended = [run for run in runs if "figures" in run]
    settings = ", ".join(f"{k}={v}" for k, v in result["overrides"].items())
    lines = [
        f"# {result['name']}",
        "",
        result["question"],
        "",
        f"Base `{result['base']}`{f' with `{settings}`' if settings else ''};"
        f" seeds {', '.join(map(str, result['seeds']))};"
        f" {len(ended)} of {len(runs)} runs have ended.",
        "",
    ]
    present = [n for n in FIGURES if any(n in c for c in comparison.cells.values())]
    if not present:
        return "\n".join([*lines, *_remarks(result)])
    figures = {name: FIGURES[name] for name in present}
    counts = collections.Counter(run["arm"] for run in ended)
    lines += markdown_table(
        ["arm", "seeds", *(figure.title for figure in figures.values())],
        [
            [
                f"{arm} (reference)" if arm == reference else arm,
                str(counts[arm]),
                *(_mean(f, cells.get(n), counts[arm]) for n, f in figures.items()),
            ]
            for arm, cells in comparison.cells.items()
        ],
        "<" + ">" * (1 + len(figures)),
    )
    lines += [
        "Means over seeds, and half of a 95% interval (Student's t).",
        f"A, B and C_mid are of ScaleRL's sigmoid through `{result['curve']}` over"
        f" {result['against']}, run by run; absent where a curve does not say what A"
        " is, with the number of seeds where some do.",
        "",
    ]
    compared = {n: f for n, f in figures.items() if n not in _COST}
    lines += _differences(comparison, compared)
    lines += _noise(comparison, compared)
    return "\n".join([*lines, *_remarks(result)])


def _differences(
    comparison: Comparison, figures: Mapping[str, Figure]
) -> Iterable[str]:
    others = [arm for arm in comparison.cells if arm != comparison.reference]
    differences = {
        (arm, name): cell.difference
        for arm in others
        for name, cell in comparison.cells[arm].items()
        if cell.difference
    }
    if not differences:
        return []
    most = max(d.seeds for d in differences.values())
    test = "One seed gives neither an interval nor a test."
    if most > 1:
        test = (
            "The mean's 95% interval, and p of a paired permutation test, which cannot"
            f" be below {least_p_value(most):.2g} with {most} seeds. p is not corrected"
            f" for the number of arms ({len(others)} against one)."
        )
    return [
        f"## Against {comparison.reference}",
        "",
        *markdown_table(
            ["arm", *(figure.title for figure in figures.values())],
            [
                [
                    arm,
                    *(
                        _difference(f, differences.get((arm, n)))
                        for n, f in figures.items()
                    ),
                ]
                for arm in others
            ],
            "<" + ">" * len(figures),
        ),
        f"Differences of runs with the same seed. {test}",
        "",
    ]


def _noise(comparison: Comparison, figures: Mapping[str, Figure]) -> Iterable[str]:
    noise = {n: comparison.noise[n] for n in figures if n in comparison.noise}
    if not noise:
        return []
    return [
        "## Noise of the seed",
        "",
        *markdown_table(
            ["", "between seeds, sd", "degrees of freedom", "shows"],
            [
                [
                    figures[name].title,
                    figures[name].tell(found.sd),
                    str(found.degrees),
                    figures[name].tell(found.shows),
                ]
                for name, found in noise.items()
            ],
            "<>>>",
        ),
        "The sd is pooled over arms. `shows` is the least difference between two arms"
        " that would be significant at 5% with that noise, were they not paired. It is"
        " that of training alone: all runs share one base.",
        "",
    ]


def _mean(figure: Figure, cell: Cell | None, runs: int) -> str:
    if cell is None:
        return "-"
    text = figure.tell(cell.mean)
    if cell.interval:
        text += f" ± {figure.tell((cell.interval[1] - cell.interval[0]) / 2)}"
    return text if cell.seeds == runs else f"{text} ({cell.seeds})"


def _difference(figure: Figure, found) -> str:
    if found is None:
        return "-"
    text = figure.tell(found.mean, "+")
    if found.interval:
        low, high = (figure.tell(x, "+") for x in found.interval)
        text += f" [{low}, {high}], p {found.p_value:.2g}"
    return text


def _remarks(result: Mapping[str, Any]) -> Iterable[str]:
    """What a reader has to know of single runs."""
    remarks = []
    for run in result["runs"]:
        which = f"{run['arm']}, seed {run['seed']}"
        if said := run.get("missing"):
            remarks.append(f"{which} has not ended: {said}")
        for why in filter(None, (run.get("ended"), run.get("unhealthy"))):
            remarks.append(f"{which} ended after step {run['steps']}: {why}")
    for key, count in result["differ"].items():
        remarks.append(f"the runs differ in {key}: {count} of them are among the runs")
    return [f"- {remark}." for remark in remarks] + [""] * bool(remarks)


def _differing(runs: Iterable[Run]) -> dict[str, int]:
    """Parts of the runs' identities of which there are several, and how many."""
    seen = collections.defaultdict(set)
    for run in runs:
        path = run.workdir / "manifest.json"
        identity = json.loads(path.read_text(encoding="utf-8"))["identity"]
        for section in _SHARED:
            for name, value in identity[section].items():
                seen[f"{section}.{name}"].add(value)
    return {key: len(values) for key, values in sorted(seen.items()) if len(values) > 1}
