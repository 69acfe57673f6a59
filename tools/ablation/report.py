"""An ablation's result: a dict for other programs, and a page of Markdown."""

import collections
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rl.files import markdown_table
from tools.ablation.compare import compare
from tools.ablation.figures import FIGURES, Figure, read_figures
from tools.ablation.study import Run, Study

# Parts of a run's identity that all runs should share; see `rl.workdir.manifest`.
_SHARED = ("base", "versions", "hosts")
_COST = ("tokens", "minutes")


def read_result(study: Study, *, curve: str, against: str) -> dict[str, Any]:
    """Reads what there is of a study's runs.

    Args:
      study: the ablation; any number of its runs may have ended.
      curve, against: see `read_figures`.

    Returns:
      What NAME.json holds: the study, its runs, and what `compare` says of them.

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
    return {
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
        **compare(by_arm, reference=study.ablation.reference),
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The page of a result."""
    reference, runs, by_arm = result["reference"], result["runs"], result["cells"]
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
    figures = {n: f for n, f in FIGURES.items() if any(n in c for c in by_arm.values())}
    if not figures:
        return "\n".join([*lines, *_remarks(result)])
    counts = collections.Counter(run["arm"] for run in ended)
    lines += markdown_table(
        ["arm", "seeds", *(figure.title for figure in figures.values())],
        [
            [
                f"{arm} (reference)" if arm == reference else arm,
                str(counts[arm]),
                *(_mean(f, cells.get(n), counts[arm]) for n, f in figures.items()),
            ]
            for arm, cells in by_arm.items()
        ],
        "<" + ">" * (1 + len(figures)),
    )
    lines += [
        "Means over seeds, and half of a 95% interval (Student's t).",
        f"A, B and C_mid are of ScaleRL's sigmoid through `{result['curve']}` over"
        f" {result['against']}, run by run, with the 95% interval of A; absent where a"
        " curve does not determine A, with the number of seeds where some do.",
        "",
    ]
    compared = {n: f for n, f in figures.items() if n not in _COST}
    lines += _differences(result, compared)
    lines += _noise(result["noise"], compared)
    return "\n".join([*lines, *_remarks(result)])


def _differences(
    result: Mapping[str, Any], figures: Mapping[str, Figure]
) -> Iterable[str]:
    reference, by_arm = result["reference"], result["cells"]
    differences = {
        arm: {n: cell["difference"] for n, cell in cells.items() if cell["difference"]}
        for arm, cells in by_arm.items()
        if arm != reference
    }
    seeds = [d["seeds"] for of_arm in differences.values() for d in of_arm.values()]
    if not seeds:
        return []
    most = max(seeds)
    test = "One seed an arm: differences of two runs, not of two methods."
    if most > 1:
        test = (
            "Brackets are 95% intervals, by Student's t over both arms' runs. p is"
            f" adjusted for {len(differences)} arms against one by Holm's method;"
            " intervals are not."
        )
    return [
        f"## Against {reference}",
        "",
        *markdown_table(
            ["arm", *(figure.title for figure in figures.values())],
            [
                [arm, *(_difference(f, of_arm.get(n)) for n, f in figures.items())]
                for arm, of_arm in differences.items()
            ],
            "<" + ">" * len(figures),
        ),
        test,
        "",
    ]


def _noise(
    noise: Mapping[str, Mapping[str, Any]], figures: Mapping[str, Figure]
) -> Iterable[str]:
    told = {figure: noise[name] for name, figure in figures.items() if name in noise}
    if not told:
        return []
    return [
        "## Noise of the seed",
        "",
        *markdown_table(
            ["", "between seeds, sd", "degrees of freedom", "shows"],
            [
                [
                    figure.title,
                    figure.tell(found["sd"]),
                    str(found["degrees"]),
                    figure.tell(found["shows"]),
                ]
                for figure, found in told.items()
            ],
            "<>>>",
        ),
        "The sd is pooled over arms. `shows` is the least difference between two arms"
        " that would be significant at 5% with that noise, were they not paired. It is"
        " that of training alone: all runs share one base.",
        "",
    ]


def _mean(figure: Figure, cell: Mapping[str, Any] | None, runs: int) -> str:
    if cell is None:
        return "-"
    text = figure.tell(cell["mean"])
    if cell["interval"]:
        low, high = cell["interval"]
        text += f" ± {figure.tell((high - low) / 2)}"
    return text if cell["seeds"] == runs else f"{text} ({cell['seeds']})"


def _difference(figure: Figure, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    text = figure.tell(found["mean"], "+")
    if found["interval"]:
        low, high = (figure.tell(x, "+") for x in found["interval"])
        text += f" [{low}, {high}], p {found['p_adjusted']:.2g}"
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
