"""The figures of an evaluation, and its tables beside those that were published."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rl.evaluate import Scored, breakdown, by_problem, summarise, templates_of
from rl.files import markdown_table
from rl.statistics import mean_interval
from rl.types import Problem
from tools.evaluation.benchmarks import title
from tools.evaluation.votes import maj_at_k

FIVE = ("aime2024", "amc83", "math500", "minerva272", "olympiadbench675")

# The last entry says how the completions were drawn. Compass-Thinker's 82.9 on MATH-500
# is no multiple of 1/500, so its row is probably an average of several draws.
# The paper's rows of the base model and of its own model, and the 7B rows (3,000
# tokens) of table 4 of the work whose harness gave the base row. That table prints
# AIME 2024 of the bare base as 0.2, a share among percentages; its own average of 38.2
# holds for 20.0, which the paper prints.
PAPER = "Compass-Thinker, arXiv 2508.08909"
HARNESS = "understand-r1-zero, arXiv 2503.20783, table 4"
PUBLISHED: tuple[tuple[str, tuple[float, ...], str, str], ...] = (
    ("Qwen2.5-Math-7B, no template", (20.0, 45.8, 69.0, 21.3, 34.7), PAPER, "greedy"),
    ("Compass-Thinker-7B", (40.0, 65.0, 82.9, 36.4, 43.5), PAPER, "not said"),
    ("Qwen2.5-Math-7B, its template", (16.7, 38.6, 50.6, 9.9, 16.6), HARNESS, "greedy"),
    ("SimpleRL-Zero-7B", (26.7, 60.2, 78.2, 27.6, 40.3), HARNESS, "greedy"),
    ("PRIME-Zero-7B", (16.7, 62.7, 83.8, 36.0, 40.9), HARNESS, "greedy"),
    ("OpenReasoner-Zero-7B", (13.3, 47.0, 79.2, 31.6, 44.0), HARNESS, "greedy"),
    ("Oat-Zero-7B", (43.3, 62.7, 80.0, 30.1, 41.0), HARNESS, "greedy"),
    ("Qwen2.5-Math-7B-Instruct", (16.7, 53.0, 83.6, 29.8, 42.7), HARNESS, "greedy"),
)

_SUBJECT_KEYS = ("subject", "subfield", "type")


def benchmark_result(
    name: str,
    problems: Sequence[Problem],
    scored: Sequence[Scored],
    classes: Mapping[str, Sequence[int | None]],
) -> dict[str, Any]:
    """`summarise`, with maj@k where several were drawn, by level and by subject.

    Args:
      name: of the benchmark.
      problems: those that were asked.
      scored: the completions, every one of a problem in `problems`.
      classes: equivalence classes of the answers, by problem id.
    """
    clusters = templates_of(problems)
    result: dict[str, Any] = {"title": title(name), "asked": len(problems)}
    result |= summarise(scored, clusters)
    if result["samples"] > 1:
        groups = by_problem(scored)
        majority = maj_at_k(
            [classes[id] for id in groups],
            [[s.correct for s in group] for group in groups.values()],
        )
        key = f"maj@{result['samples']}"
        result[key] = float(majority.mean())
        result[f"{key}_interval"] = mean_interval(
            majority, [clusters[id] for id in groups] if clusters else None
        )
    if clusters:
        result["clusters"] = len({clusters[id] for id in by_problem(scored)})
    for key, label in (("by_level", lambda p: p.level), ("by_subject", subject)):
        labels = {p.id: label(p) for p in problems}
        result[key] = breakdown(scored, labels, clusters)
    return result


def subject(problem: Problem) -> str | None:
    """The field of mathematics that a row names, if any."""
    found = (problem.meta.get(key) for key in _SUBJECT_KEYS)
    return next((str(value) for value in found if value), None)


def average_of_five(benchmarks: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The unweighted mean accuracy of the paper's five, None unless all are there.

    Nor where one is another copy than the one that is known.
    """
    if not all(name in benchmarks for name in FIVE):
        return None
    if any(benchmarks[name].get("another_copy") for name in FIVE):
        return None
    return float(np.mean([benchmarks[name]["accuracy"] for name in FIVE]))


def markdown(results: Mapping[str, Any]) -> str:
    """The tables of a results.json: beside the published rows, and in detail."""
    benchmarks = results["benchmarks"]
    drawn = drawing(results["conditions"].get("drawing", {}))
    lines = [f"# {results['model']}", ""]
    if set(benchmarks) & set(FIVE):
        lines += _beside_published(results["model"], benchmarks, drawn)
    others = [result for name, result in benchmarks.items() if name not in FIVE]
    if others:
        several = _of_several(others)
        lines += markdown_table(
            ["benchmark", f"accuracy, % ({drawn})", *(f"{key}, %" for key in several)],
            [
                [r["title"], *(_percent(r, key) for key in ("accuracy", *several))]
                for r in others
            ],
        )
    lines += ["## In detail", ""]
    lines += markdown_table(
        list(_DETAIL),
        [[cell(result) for cell in _DETAIL.values()] for result in benchmarks.values()],
    )
    for key, heading in (("by_level", "By level"), ("by_subject", "By subject")):
        rows = [
            [result["title"], label, str(part["problems"]), _percent(part)]
            for result in benchmarks.values()
            for label, part in result[key].items()
        ]
        if rows:
            lines += [f"## {heading}", ""]
            lines += markdown_table(["benchmark", "", "problems", "accuracy, %"], rows)
    lines += ["## Conditions", "", *_conditions(results)]
    return "\n".join(lines) + "\n"


def drawing(said: Mapping[str, Any]) -> str:
    """How completions were drawn: greedy, or how many at which temperature."""
    if "temperature" not in said:
        return "drawing not recorded"
    if said["temperature"] == 0:
        return "greedy"
    nucleus = "" if said.get("top_p", 1.0) == 1.0 else f", top-p {said['top_p']:g}"
    return f"avg@{said['samples']} at T={said['temperature']:g}{nucleus}"


def difference(part: Mapping[str, Any]) -> str:
    """In points of percent, with its interval."""
    low, high = (100 * edge for edge in part["difference_interval"])
    return f"{100 * part['difference']:+.1f} [{low:+.1f}, {high:+.1f}]"


def _of_several(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """The figures of k samples that stand beside accuracies: maj@k and pass@k."""
    keys = [f"{of}@{r['samples']}" for r in results for of in ("maj", "pass")]
    return [key for key in dict.fromkeys(keys) if not key.endswith("@1")]


def _beside_published(
    model: str, benchmarks: Mapping[str, Any], drawn: str
) -> list[str]:
    five = [benchmarks.get(name, {}) for name in FIVE]
    ours = [
        _percent(r) + (" of another copy" if "another_copy" in r else "") for r in five
    ]
    average = average_of_five(benchmarks)
    ours.append("" if average is None else f"**{100 * average:.1f}**")
    rows = [[f"**{model}**", drawn, *ours, "this evaluation"]]
    for key in _of_several(filter(None, five)):
        figures = [_percent(result, key) for result in five]
        rows.append([f"**{model}**", key, *figures, "", "this evaluation"])
    for name, scores, source, how in PUBLISHED:
        figures = [f"{score:.1f}" for score in scores]
        rows.append([name, how, *figures, f"{np.mean(scores):.1f}", source])
    header = ["%", "drawn", *map(title, FIVE), "mean", "source"]
    lines = markdown_table(header, rows)
    if drawn != "greedy":
        lines += [
            f"**Not drawn alike**: this evaluation is {drawn}, the published rows are "
            "greedy or do not say.",
            "",
        ]
    return lines + [
        "Brackets are 95% intervals over problems, or over templates where problems are"
        " made from them. Published rows carry none; they compare only where the "
        "conditions below are theirs (greedy, 3,000 tokens).",
        "",
    ]


def _sampled(result: Mapping[str, Any]) -> str:
    """All maj@k and pass@k but pass@1, which is the accuracy."""
    keys = [key for key in result if "@" in key and not key.endswith("_interval")]
    return ", ".join(f"{k} {100 * result[k]:.1f}" for k in keys if k != "pass@1")


def _tokens(result: Mapping[str, Any]) -> str:
    if "tokens_mean" not in result:
        return ""
    return f"{result['tokens_mean']:.0f} / {result['tokens_p95']:.0f}"


def _memory(result: Mapping[str, Any]) -> str:
    """How many problems the model knows by heart; see `tools.evaluation.audit`."""
    if "memory" not in result:
        return "not audited"
    told = result["memory"].items()
    return ", ".join(f"{100 * part['completed']:.1f} ({p}%)" for p, part in told)


def _known(result: Mapping[str, Any]) -> str:
    """A set with other numbers beside the problems that it was made from."""
    if "original" not in result:
        return ""
    known = result["original"]
    return (
        f"{difference(known)} from {100 * known['first']:.1f} of {known['problems']},"
        f" p {known['p_value']:.2g}"
    )


def _conditions(results: Mapping[str, Any]) -> list[str]:
    said = results["conditions"].get("drawing", {})
    rows = [[key, f"`{value}`"] for key, value in said.items() if value is not None]
    rows = rows or [["drawing", "not recorded"]]
    rows.append(["reward", f"`{results['reward']}`"])
    rows.append(["verifier", f"`{results['verifier']}`"])
    return markdown_table(["condition", "value"], rows)


def _percent(part: Mapping[str, Any], key: str = "accuracy") -> str:
    """A figure with its interval, nothing where it is not there."""
    if key not in part:
        return ""
    low, high = part[f"{key}_interval"]
    return f"{100 * part[key]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


_DETAIL: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "benchmark": lambda r: r["title"],
    "problems": lambda r: f"{r['problems']} of {r['asked']}",
    "samples": lambda r: str(r["samples"]),
    "accuracy, %": _percent,
    "of k samples, %": _sampled,
    "no answer, %": lambda r: f"{100 * r['no_answer']:.1f}",
    "truncated, %": lambda r: f"{100 * r['truncated']:.1f}" if "truncated" in r else "",
    "repetitive, %": lambda r: f"{100 * r['repeated']:.1f}" if "repeated" in r else "",
    "completes the problem, % (of it given)": _memory,
    "against its known numbers": _known,
    "tokens, mean / p95": _tokens,
}
