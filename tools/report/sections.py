"""Renders the report of runs: health, curves, accuracies, settings, completions."""

import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import flatten
from rl.metrics import EVALUATED, HEADLINE
from rl.progress import duration
from tools import page as html_page
from tools.page import Series, is_number, note, section, shown, table, tag
from tools.report.health import Finding, findings
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
Findings = Mapping[str, Sequence[Finding]]  # by name of the run
# Limits on the characters of one completion and of all completions together.
_MOST_OF_A_TEXT, _MOST_TEXT = 6_000, 2_500_000
_SMOOTHED = 20  # curves are moving averages over 1 / _SMOOTHED of a run
_KINDS = ("best", "worst", "suspect", "truncated", "repeated", "right", "wrong")


def page(runs: Sequence[Run]) -> str:
    """Returns the HTML page of one run, or a comparison of several runs."""
    found = {run.name: findings(run) for run in runs}

    def each(render: Callable[[Run], str]) -> str:
        if len(runs) == 1:
            return render(runs[0])
        return "".join(tag("h3", html.escape(r.name)) + render(r) for r in runs)

    parts = {
        "Health": _health(found),
        "Curves": _curves(runs),
        "Before and after": _before_and_after(runs),
        "Differences": _differences(runs) if len(runs) > 1 else "",
        "Settings": each(_settings),
        "Time": each(_spent),
        "Completions": _samples(runs),
    }
    body = "".join(section(title, content) for title, content in parts.items())
    return html_page.document(
        ", ".join(r.name for r in runs), _outcome(runs, found) + body
    )


def _outcome(runs: Sequence[Run], found: Findings) -> str:
    rows = []
    for run in runs:
        state = "finished" if run.summary else "stopped"
        state = "running" if run.running else state
        state = "ended early" if run.summary.get("ended") else state
        spent = run.summary.get("wall_seconds")
        total = _total(run, "seconds/step")
        seconds = float(spent) if isinstance(spent, int | float) else total
        steps = f"{run.done} of {run.config.get('steps')}"
        scores = [_percent(part(run.summary, key)) for key in ("base", "final")]
        count = len(found[run.name])
        rows.append((run.name, steps, state, duration(seconds), count, *scores))
    head = ("run", "steps", "state", "time", "findings", "accuracy before, %")
    return table((*head, "accuracy after, %"), rows)


def _health(found: Findings) -> str:
    fine = [name for name, of_run in found.items() if not of_run]
    rows = [(name, *f) for name, of_run in found.items() for f in of_run]
    which = f" in {', '.join(fine)}" if len(found) > 1 else ""
    body = note(f"No problems found{which}.") if fine else ""
    body += note(f"Findings: {len(rows)}", "bad") if rows else ""
    return body + table(("run", "steps", "kind", "finding"), rows)


# -- curves --------------------------------------------------------------------------


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns moving averages over about n / 20 of n points, at least 3 if n > 7."""
    half = max(len(points) // (2 * _SMOOTHED), min(1, len(points) // 8))
    values = np.array([value for _, value in points], np.float64)
    return [
        (step, float(values[max(0, i - half) : i + half + 1].mean()))
        for i, (step, _) in enumerate(points)
    ]


def _curves(runs: Sequence[Run]) -> str:
    """Renders a chart per title of `CURVES`; for several runs, a chart per metric."""
    charts: dict[str, list[tuple[Run, str, str]]] = {}  # run, metric and label of lines
    for title, tags in CURVES.items():
        if len(runs) > 1:
            charts |= {tag: [(run, tag, run.name) for run in runs] for tag in tags}
            continue
        sets = list(part(runs[0].config, "data", "eval"))[1:]
        tags += tuple(tag.replace("/", f"/{name}/") for tag in tags for name in sets
                      if tag.startswith(EVALUATED))  # fmt: skip
        charts[title] = [(runs[0], tag, tag) for tag in tags]
    drawn = []
    for title, wanted in charts.items():
        lines = [_line(*each, colour) for colour, each in enumerate(wanted)]
        if some := [line for line in lines if line.points]:
            drawn.append(html_page.lines(title, some))
    if not drawn:
        return note("No step is done yet.")
    words = (
        f"Lines are moving averages over about 1/{_SMOOTHED} of the steps, except for"
        " evaluations. Faint lines are the values of the steps."
    )
    return note(words) + html_page.plots(drawn)


def _line(run: Run, metric: str, label: str, colour: int) -> Series:
    points = run.series(metric)
    if metric.startswith(EVALUATED):
        return Series(label=label, points=points, colour=colour)
    return Series(label=label, points=smoothed(points), raw=points, colour=colour)


# -- accuracy ------------------------------------------------------------------------


def _percent(figures: Mapping[str, Any], key: str = "accuracy") -> str:
    value = figures.get(key)
    return f"{100 * value:.1f}" if value is not None and is_number(value) else ""


def _range(interval: tuple[float, float] | None) -> str:
    return " to ".join(f"{100 * x:.1f}" for x in interval) if interval else ""


def _before_and_after(runs: Sequence[Run]) -> str:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}  # by name, then before, after
    for run in runs:
        first = next(iter(part(run.config, "data", "eval")), "all problems")
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        for key, word in (("base", "before"), ("final", "after")):
            whole = part(run.summary, key)
            found.setdefault(prefix + first, {})[word] = whole
            for by, kind in (("sets", ""), ("by_source", ""), ("by_level", "level ")):
                parts = part(whole, by)
                for label in parts if len(parts) > 1 or by == "sets" else ():
                    name = f"{prefix}{kind}{label}"
                    found.setdefault(name, {})[word] = part(parts, label)
    rows, cells = [], []
    every = [(name, *end) for name, ends in found.items() for end in ends.items()]
    for name, word, figures in every:
        if not is_number(figures.get("accuracy")):
            continue
        interval, colour = interval_of(figures), int(word == "before")
        rows.append((f"{name}, {word}", float(figures["accuracy"]), interval, colour))
        left_out = figures.get("left_out")
        count = str(figures.get("problems", ""))
        count += f" (incomplete: {left_out} left out)" if left_out else ""
        keys = ("greedy_accuracy", "truncated")
        scores = [_percent(figures, key) for key in keys]
        accuracy = _percent(figures), _range(interval)
        cells.append((name, word, count, *accuracy, *scores))
    if not rows:
        return note("Nothing was evaluated, or the run has not ended.")
    head = ("problems", "when", "count", "accuracy, %", "95% interval", "greedy, %")
    chart = html_page.dots("Accuracy, %, with 95% intervals over problems", rows[:40])
    return html_page.plots([chart]) + table((*head, "truncated, %"), cells)


# -- settings, time ------------------------------------------------------------------


def _differences(runs: Sequence[Run]) -> str:
    """Renders the config keys whose values differ, as JSON."""
    configs = [flatten(run.config) for run in runs]
    rows = []
    for key in sorted({key for run in runs for key in run.changes}):
        values = [json.dumps(config.get(key)) for config in configs]
        if len(set(values)) > 1:
            rows.append((key, *values))
    return table(("config key", *(run.name for run in runs)), rows)


def _settings(run: Run) -> str:
    facts = [
        (key, json.dumps(value)[:400])
        for key, value in flatten(run.manifest).items()
        if not key.startswith(("identity.config.", "config."))
    ]
    changed = [(k, json.dumps(v)[:400]) for k, v in sorted(run.changes.items())]
    head = ("config key that differs from configs/base.py", "value")
    manifest = html_page.details("manifest.json", table(("key", "value"), facts))
    return table(head, changed) + manifest


def _total(run: Run, metric: str) -> float:
    values = (row.get(metric, 0.0) for row in run.steps)
    return float(sum(value for value in values if math.isfinite(value)))


def _spent(run: Run) -> str:
    phases = {key for row in run.steps for key in row if key.startswith("seconds/")}
    seconds = {key[8:]: _total(run, key) for key in phases - {"seconds/step"}}
    rest = _total(run, "seconds/step") - sum(seconds.values())
    seconds["other"] = max(rest, 0.0)
    whole = sum(seconds.values()) or 1.0
    longest_first = sorted(seconds.items(), key=lambda item: -item[1])
    rows = [(f"{name}, {100 * s / whole:.1f}%", s) for name, s in longest_first]
    bars = html_page.bars("Seconds of the steps, by phase", rows, unit=" s")
    return html_page.plots([bars] if run.steps else [])


# -- completions ---------------------------------------------------------------------


def _samples(runs: Sequence[Run]) -> str:
    several = len(runs) > 1
    rows = [(_kinds(row), _sample(r, row, several)) for r in runs for row in r.samples]
    if not rows:
        return note("No completions were recorded.")
    shown_rows, apart = rows, 1
    while sum(len(body) for _, body in shown_rows) > _MOST_TEXT and len(shown_rows) > 1:
        apart *= 2
        shown_rows = rows[::apart]
    left = len(rows) - len(shown_rows)
    more = note(f"{left} more completions are in samples.jsonl.") if left else ""
    return more + html_page.filtered(_KINDS, shown_rows)


def _kinds(row: Mapping[str, Any]) -> str:
    kinds = {*(row.get("shown_as") or [])} & {*_KINDS}
    kinds.add("right" if row.get("correct") is True else "wrong")
    kinds |= {"truncated"} if row.get("finish_reason") == "length" else set()
    kinds |= {k for k in ("repeated", "suspect") if row.get(k)}
    return " ".join(kind for kind in _KINDS if kind in kinds)


def _sample(run: Run, row: Mapping[str, Any], several: bool) -> str:
    facts = [f"step {row['step']}", *([run.name] if several else [])]
    facts += [f"reward {shown(row['reward'])}", _kinds(row)]
    facts += [f"{key} {row[key]}" for key in ("rule", "tokens") if key in row]
    facts += [f"{name} {value}" for name, value in part(row, "components").items()]
    why = note(f"Suspect: {row['suspect']}.", "bad") if row.get("suspect") else ""
    body = why + html_page.text(str(row.get("prompt", row["problem"])), _MOST_OF_A_TEXT)
    body += note(f"Gold: {row['gold'][:_MOST_OF_A_TEXT]}")
    body += html_page.text(row["completion"], _MOST_OF_A_TEXT)
    kind = "right" if row.get("correct") is True else "wrong"
    return html_page.details(" · ".join(facts), body, kind)
