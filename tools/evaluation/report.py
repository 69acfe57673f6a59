"""Computes the results of an evaluation, and makes the sections of its report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl.evaluate import Scored, breakdown, by_problem, summarise, templates
from rl.statistics import mean_interval
from tools.evaluation.benchmarks import title
from tools.evaluation.votes import maj_at_k
from tools.page import Dots, Entry, Section, with_interval

FIVE = ("aime2024", "amc83", "math500", "minerva272", "olympiadbench675")
"""Names of the paper's benchmarks."""

# Each row: name, accuracies in % in the order of `FIVE`, source, sampling. The rows of
# HARNESS are its 7B models with 3,000 tokens. HARNESS prints 0.2 for AIME 2024 of the
# base model without template, but the mean of 38.2 implies 20.0. Compass-Thinker's 82.9
# on MATH-500 is not a multiple of 1/500, so this row is probably an average of samples.
PAPER = "Compass-Thinker, arXiv 2508.08909"
HARNESS = "understand-r1-zero, arXiv 2503.20783, table 4"
PUBLISHED: tuple[tuple[str, tuple[float, ...], str, str], ...] = (
    ("Qwen2.5-Math-7B, no template", (20.0, 45.8, 69.0, 21.3, 34.7), PAPER, "greedy"),
    ("Compass-Thinker-7B", (40.0, 65.0, 82.9, 36.4, 43.5), PAPER, "not stated"),
    ("Qwen2.5-Math-7B, its template", (16.7, 38.6, 50.6, 9.9, 16.6), HARNESS, "greedy"),
    ("SimpleRL-Zero-7B", (26.7, 60.2, 78.2, 27.6, 40.3), HARNESS, "greedy"),
    ("PRIME-Zero-7B", (16.7, 62.7, 83.8, 36.0, 40.9), HARNESS, "greedy"),
    ("OpenReasoner-Zero-7B", (13.3, 47.0, 79.2, 31.6, 44.0), HARNESS, "greedy"),
    ("Oat-Zero-7B", (43.3, 62.7, 80.0, 30.1, 41.0), HARNESS, "greedy"),
    ("Qwen2.5-Math-7B-Instruct", (16.7, 53.0, 83.6, 29.8, 42.7), HARNESS, "greedy"),
)
_MOST_CHARACTERS = 32_000_000  # of all completions in the page
Figures = Mapping[str, Any]
"""Results of one benchmark, as `benchmark_result` returns them."""


def benchmark_result(
    name: str,
    asked: int,
    scored: Sequence[Scored],
    classes: Mapping[str, Sequence[str | None]],
) -> dict[str, Any]:
    """Returns the results of `rl.evaluate.summarise`, accuracies by level, and maj@k.

    k is the number of samples; maj@1 is left out. `asked` is the number of problems in
    the benchmark, and `classes` is the result of `answer_classes`.
    """
    groups = by_problem(scored)
    clusters = templates(groups)
    result: dict[str, Any] = {"title": title(name), "asked": asked}
    result |= summarise(scored)
    if result["samples"] > 1:
        majority = maj_at_k(
            [classes[id] for id in groups],
            [[s.correct for s in group] for group in groups.values()],
        )
        key = f"maj@{result['samples']}"
        result[key] = float(majority.mean())
        result[f"{key}_interval"] = mean_interval(majority, clusters)
    if clusters:
        result["clusters"] = len(set(clusters))
    result["by_level"] = breakdown(scored, lambda problem: problem.level)
    return result


def average_of_five(benchmarks: Mapping[str, Figures]) -> float | None:
    """Returns the mean accuracy on `FIVE`; None if one is missing."""
    if not benchmarks.keys() >= {*FIVE}:
        return None
    return float(np.mean([benchmarks[name]["accuracy"] for name in FIVE]))


def tables(results: Mapping[str, Any]) -> list[Section]:
    """Makes tables from results.json: published results, details, and conditions."""
    model, benchmarks = results["model"], results["benchmarks"]
    drawing = results["conditions"].get("drawing", {})
    report = []
    if set(benchmarks) & set(FIVE):
        report.append(_with_published(model, benchmarks, sampling(drawing)))
    shown = {k: c for k, c in _DETAIL.items() if any(map(c, benchmarks.values()))}
    report.append(
        Section(
            "In detail",
            [{k: cell(r) for k, cell in shown.items()} for r in benchmarks.values()],
            "Brackets are 95% intervals over problems, or over the templates from which"
            " problems were made.",
        )
    )
    facts = (drawing or {"sampling": "not recorded"}) | {
        name: results.get(name) for name in ("reward", "verifier")
    }
    conditions = [
        {"condition": key, "value": f"`{value}`"}
        for key, value in facts.items()
        if value is not None
    ]
    return [*report, Section("Conditions", conditions)]


def sampling(drawing: Mapping[str, Any]) -> str:
    """Describes how completions were sampled, such as "greedy" or "avg@32 at T=0.6"."""
    if "temperature" not in drawing:
        return "sampling not recorded"
    if drawing["temperature"] == 0:
        return "greedy"
    top_p = drawing.get("top_p", 1.0)
    nucleus = "" if top_p == 1.0 else f", top-p {top_p:g}"
    return f"avg@{drawing['samples']} at T={drawing['temperature']:g}{nucleus}"


def difference(part: Figures) -> str:
    """Formats a difference in percentage points with its interval."""
    return with_interval(part["difference"], part["difference_interval"], "+.1f", 100)


def percent(part: Figures, key: str = "accuracy") -> str:
    """Formats a share as a percentage with its interval; "" if it is missing."""
    if key not in part:
        return ""
    return with_interval(part[key], part[f"{key}_interval"], scale=100)


def _with_published(
    model: str, benchmarks: Mapping[str, Figures], drawn: str
) -> Section:
    average = average_of_five(benchmarks)
    mean = "" if average is None else f"{100 * average:.1f}"
    own = [percent(benchmarks.get(name, {})) for name in FIVE]
    table = [(model, own, mean, "this evaluation", drawn)]
    for name, scores, source, how in PUBLISHED:
        cells = [f"{score:.1f}" for score in scores]
        table.append((name, cells, f"{np.mean(scores):.1f}", source, how))
    rows = [
        {"%": name, "sampling": how}
        | {title(of): cell for of, cell in zip(FIVE, cells, strict=True)}
        | {"mean": mean, "source": source}
        for name, cells, mean, source, how in table
    ]
    note = (
        "Published rows are comparable only if sampled under the conditions below. They"
        f" are greedy or do not state it; this evaluation: {drawn}."
    )
    return Section("", rows, note)


def _memory(result: Figures) -> str:
    if "memory" not in result:
        return "not measured, needs --audit"
    shares = result["memory"].items()
    return ", ".join(f"{100 * part['completed']:.1f} ({p}%)" for p, part in shares)


def _original(result: Figures) -> str:
    if "original" not in result:
        return ""
    known = result["original"]
    return (
        f"{difference(known)} from {100 * known['first']:.1f} on"
        f" {known['problems']} problems, p {known['p_value']:.2g}"
    )


def _share(key: str) -> Callable[[Figures], str]:
    return lambda result: f"{100 * result[key]:.1f}" if key in result else ""


_DETAIL: Mapping[str, Callable[[Figures], str]] = {
    "benchmark": lambda r: r["title"],
    "problems": lambda r: f"{r['problems']} of {r['asked']}",
    "samples": lambda r: str(r["samples"]),
    "accuracy, %": percent,
    "of k samples, %": lambda r: ", ".join(
        f"{key} {100 * r[key]:.1f}"
        for key in r
        if "@" in key and not key.endswith("_interval") and key != "pass@1"
    ),
    "nearest neighbour, %": lambda r: percent(r, "nearest"),
    "no answer, %": _share("no_answer"),
    "truncated, %": _share("truncated"),
    "repetitive, %": _share("repeated"),
    "problem completed, % (share given)": _memory,
    "difference from original numbers": _original,
    "tokens, mean / p95": lambda r: (
        f"{r['tokens_mean']:.0f} / {r['tokens_p95']:.0f}" if "tokens_mean" in r else ""
    ),
}


def completions(
    results: Mapping[str, Any],
    scored: Mapping[str, Sequence[Scored]],
    *,
    max_characters: int = _MOST_CHARACTERS,
) -> list[Section]:
    """Returns a chart of accuracies, and the completions of each problem.

    In the page, `#BENCHMARK/ID` links to a problem. If all completions together exceed
    `max_characters`, the last completions of each problem are left out.
    """
    every = [s.drawn for of_benchmark in scored.values() for s in of_benchmark]
    samples = 1 + max(drawn.sample for drawn in every)
    total = sum(len(drawn.completion) for drawn in every)
    shown = min(samples, max(1, samples * max_characters // max(1, total)))
    note = f"Only the first {shown} completions of each problem are shown."
    accuracies = Dots(
        "Accuracy, %, with 95% intervals",
        [
            (result["title"], result["accuracy"], result["accuracy_interval"], 0)
            for result in results["benchmarks"].values()
        ],
    )
    chart = Section("", note=note if shown < samples else "", charts=[accuracies])
    return [chart] + [
        Section(
            result["title"],
            entries=[
                _problem(f"{name}/{id}", group, shown)
                for id, group in by_problem(scored[name]).items()
            ],
        )
        for name, result in results["benchmarks"].items()
    ]


def _problem(anchor: str, group: Sequence[Scored], shown: int) -> Entry:
    problem = group[0].problem
    right = sum(s.correct for s in group)
    kinds = ["solved" if right == len(group) else "mixed" if right else "unsolved"]
    if any(s.drawn.finish_reason == "length" for s in group):
        kinds.append("truncated")
    if any(s.drawn.repetitive for s in group):
        kinds.append("repeats")
    samples = [
        Entry(
            f"{'right' if s.correct else 'wrong'}: {s.answer or 'no answer'}"
            f" ({s.verdict.rule}, {s.drawn.tokens} tokens)",
            texts=[s.drawn.completion],
            kinds=["right" if s.correct else "wrong"],
        )
        for s in sorted(group, key=lambda s: s.drawn.sample)
        if s.drawn.sample < shown
    ]
    level = f", level {problem.level}" if problem.level is not None else ""
    return Entry(
        f"{problem.id}: {right} of {len(group)} right{level}",
        texts=[problem.problem],
        notes=[f"Gold: {' or '.join(problem.answers)}"],
        kinds=kinds,
        entries=samples,
        anchor=anchor,
    )
