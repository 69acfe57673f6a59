"""Renders the report of runs: health, curves, accuracies, settings, completions."""

import html
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import flatten
from rl.metrics import EVALUATED, HEADLINE
from rl.progress import duration
from tools.page import Dots, Entry, Lines, Section, Series, cut, is_number, shown
from tools.page import page as render
from tools.report.health import findings
from tools.report.reading import Run, interval_of, part

# The metrics of each chart, by title. Metrics that a run lacks are not drawn.
CURVES = HEADLINE | {
    "pass@k": tuple(f"eval/pass@{2**i}" for i in range(1, 7)),
    "groups all right, all wrong": ("sampling/solve_all", "sampling/solve_none"),
    "gradient norm": ("policy/grad_norm",),
    "KL, nats": ("policy/kl_old_policy", "policy/kl_reference"),
    "sampler gap, nats": ("policy/sampler_gap_mean",),
    "learning rate": ("schedule/learning_rate",),
}
# Limits on the characters of one completion and of all completions together.
_MOST_OF_A_TEXT, _MOST_TEXT = 6_000, 2_500_000
_SMOOTHED = 20  # curves are moving averages over 1 / _SMOOTHED of a run
_KINDS = ("best", "worst", "suspect", "truncated", "repeated", "right", "wrong")


def page(runs: Sequence[Run]) -> str:
    """Returns the HTML page of one run, or a comparison of several runs."""
    parts = (_before_and_after, _settings, _time, _manifest, _completions)

    def titled(run: Run, section: Section) -> Section:
        title = f"{run.name}: {section.title}"
        return section._replace(title=title) if len(runs) > 1 else section

    report = [
        Section("", [_outcome(run) for run in runs]),
        *(titled(run, _health(run)) for run in runs),
        _curves(runs),
        _differences(runs),
        *(titled(run, make(run)) for run in runs for make in parts),
    ]
    return render(", ".join(run.name for run in runs), report)


def _outcome(run: Run) -> dict[str, Any]:
    state = "finished" if run.summary else "stopped"
    state = "running" if run.running else state
    state = "ended early" if run.summary.get("ended") else state
    spent = run.summary.get("wall_seconds")
    return {
        "run": run.name,
        "accuracy before, %": _percent(part(run.summary, "base")),
        "accuracy after, %": _percent(part(run.summary, "final")),
        "steps": f"{run.done} of {run.config.get('steps')}",
        "state": state,
        "time": duration(spent if is_number(spent) else _total(run, "seconds/step")),
        "findings": len(findings(run)),
    }


def _health(run: Run) -> Section:
    rows = [finding._asdict() for finding in findings(run)]
    return Section("Health", rows, "" if rows else "No problems found.")


# -- curves --------------------------------------------------------------------------


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns moving averages over about n / 20 of n points, at least 3 if n > 7."""
    half = max(len(points) // (2 * _SMOOTHED), min(1, len(points) // 8))
    values = np.array([value for _, value in points], np.float64)
    return [
        (step, float(values[max(0, i - half) : i + half + 1].mean()))
        for i, (step, _) in enumerate(points)
    ]


def _curves(runs: Sequence[Run]) -> Section:
    """Makes a chart per title of `CURVES`; for several runs, a chart per metric."""
    charts = []
    for title, tags in CURVES.items():
        if len(runs) > 1:
            charts += [Lines(t, [_line(r, t, r.name) for r in runs]) for t in tags]
            continue
        sets = list(part(runs[0].config, "data", "eval"))[1:]
        tags += tuple(tag.replace("/", f"/{name}/") for tag in tags for name in sets
                      if tag.startswith(EVALUATED))  # fmt: skip
        charts.append(Lines(title, [_line(runs[0], tag, tag) for tag in tags]))
    drawn = [c for c in charts if any(line.points for line in c.series)]
    note = (
        f"Lines are moving averages over about 1/{_SMOOTHED} of the steps, except for"
        " evaluations. Faint lines are the values of the steps. With"
        " config.eval.problems, evaluations during a run have fewer problems than those"
        " before and after it."
    )
    return Section("Curves", (), note if drawn else "No step is done yet.", drawn)


def _line(run: Run, metric: str, label: str) -> Series:
    points = run.series(metric)
    if metric.startswith(EVALUATED):
        return Series(label, points)
    return Series(label, smoothed(points), raw=points)


# -- accuracy ------------------------------------------------------------------------


def _percent(figures: Mapping[str, Any], key: str = "accuracy") -> str:
    value = figures.get(key)
    return f"{100 * value:.1f}" if is_number(value) else ""


def _before_and_after(run: Run) -> Section:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}  # by name, then before, after
    first = next(iter(part(run.config, "data", "eval")), "all problems")
    for key, word in (("base", "before"), ("final", "after")):
        whole = part(run.summary, key)
        found.setdefault(first, {})[word] = whole
        for by, kind in (("sets", ""), ("by_source", ""), ("by_level", "level ")):
            parts = part(whole, by)
            for label in parts if len(parts) > 1 or by == "sets" else ():
                found.setdefault(f"{kind}{label}", {})[word] = part(parts, label)
    dots, rows = [], []
    every = [(name, *end) for name, ends in found.items() for end in ends.items()]
    for name, word, figures in every:
        if not is_number(figures.get("accuracy")):
            continue
        interval, colour = interval_of(figures), int(word == "before")
        dots.append((f"{name}, {word}", float(figures["accuracy"]), interval, colour))
        left_out = figures.get("left_out")
        rows.append(
            {
                "problems": name,
                "when": word,
                "count": f"{figures.get('problems', '')}"
                + (f" (incomplete: {left_out} left out)" if left_out else ""),
                "accuracy, %": _percent(figures),
                "95% interval": " to ".join(f"{100 * x:.1f}" for x in interval or ()),
                "greedy, %": _percent(figures, "greedy_accuracy"),
                "truncated, %": _percent(figures, "truncated"),
            }
        )
    chart = Dots("Accuracy, %, with 95% intervals over problems", dots[:40])
    note = "" if rows else "Nothing was evaluated, or the run has not ended."
    return Section("Before and after", rows, note, [chart] if rows else ())


# -- settings, time ------------------------------------------------------------------


def _differences(runs: Sequence[Run]) -> Section:
    """Lists the config keys whose values differ between runs, as JSON."""
    configs = {run.name: flatten(run.config) for run in runs}
    rows = []
    for key in sorted({key for run in runs for key in run.changes}):
        values = {name: json.dumps(config.get(key)) for name, config in configs.items()}
        if len(set(values.values())) > 1:
            rows.append({"config key": key} | values)
    return Section("Differences", rows)


def _settings(run: Run) -> Section:
    rows = _values(dict(sorted(run.changes.items())), "config key")
    return Section("Settings that differ from configs/base.py", rows)


def _manifest(run: Run) -> Section:
    rows = _values(flatten(run.manifest), "key")
    configs = "identity.config.", "config."
    rows = [row for row in rows if not row["key"].startswith(configs)]
    return Section("manifest.json", rows)


def _values(values: Mapping[str, Any], label: str) -> list[dict[str, str]]:
    return [{label: key, "value": json.dumps(x)[:400]} for key, x in values.items()]


def _time(run: Run) -> Section:
    phases = {key for row in run.steps for key in row if key.startswith("seconds/")}
    seconds = {key[8:]: _total(run, key) for key in phases - {"seconds/step"}}
    rest = _total(run, "seconds/step") - sum(seconds.values())
    seconds["other"] = max(rest, 0.0)
    whole = sum(seconds.values()) or 1.0
    rows = [
        {"phase": name, "seconds": s, "share, %": f"{100 * s / whole:.1f}"}
        for name, s in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    return Section("Time", rows if run.steps else ())


def _total(run: Run, metric: str) -> float:
    values = (row.get(metric, 0.0) for row in run.steps)
    return float(sum(value for value in values if math.isfinite(value)))


# -- completions ---------------------------------------------------------------------


def _completions(run: Run) -> Section:
    entries = [*map(_completion, run.samples)]
    lengths = [sum(len(html.escape(text)) for text in e.texts) for e in entries]
    apart = 1
    while sum(lengths[::apart]) > _MOST_TEXT and apart < len(entries):
        apart *= 2
    left = len(entries) - len(entries[::apart])
    note = f"{left} more completions are in samples.jsonl." if left else ""
    note = note if entries else "No completions were recorded."
    return Section("Completions", note=note, entries=entries[::apart])


def _completion(row: Mapping[str, Any]) -> Entry:
    kinds = {*(row.get("shown_as") or [])} & {*_KINDS}
    kinds.add("right" if row.get("correct") is True else "wrong")
    kinds |= {"truncated"} if row.get("finish_reason") == "length" else set()
    kinds |= {k for k in ("repeated", "suspect") if row.get(k)}
    ordered = [kind for kind in _KINDS if kind in kinds]
    facts = [f"step {row['step']}", f"reward {shown(row['reward'])}", *ordered]
    facts += [f"{key} {row[key]}" for key in ("rule", "tokens") if key in row]
    facts += [f"{name} {value}" for name, value in part(row, "components").items()]
    why = [f"Suspect: {row['suspect']}."] if row.get("suspect") else []
    texts = [str(row.get("prompt", row["problem"])), row["completion"]]
    return Entry(
        summary=" · ".join(facts),
        texts=[cut(text, _MOST_OF_A_TEXT) for text in texts],
        notes=[*why, f"Gold: {row['gold'][:_MOST_OF_A_TEXT]}"],
        kinds=ordered,
    )
