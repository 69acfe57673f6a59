"""The page of one or several runs: what ran, how it went, what it wrote."""

import html
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import flatten
from rl.metrics import HEADLINE
from rl.progress import duration
from rl.statistics import t_interval
from tools.page import (
    Series,
    bars,
    cards,
    document,
    dots,
    embedded,
    is_number,
    lines,
    parts,
    shown,
    table,
)
from tools.report.health import findings
from tools.report.reading import Run, section

_TEMPLATE = pathlib.Path(__file__).with_name("page.html")
# Characters in the page: of a completion, of all of them, of a value, of all tokens.
_MOST_OF_A_TEXT, _MOST_TEXT = 6_000, 2_500_000
_MOST_OF_A_VALUE, _MOST_OF_TOKENS = 400, 1_200_000
_MOST_TOKENS, _MOST_TOKEN_ROWS = 1_024, 12
_SMOOTHED = 20  # parts of a run, over one of which a curve is averaged


def page(runs: Sequence[Run]) -> str:
    """Renders the page; one run is shown whole, several are compared besides."""
    title = ", ".join(run.name for run in runs)
    body = [f"<h1>{_text(title)}</h1>", _figures(runs)]
    if len(runs) > 1:
        body += ["<h2>Compared</h2>", _compared(runs)]
    body += ["<h2>Health</h2>", _health(runs)]
    body += ["<h2>Curves</h2>", _curves(runs)]
    body += ["<h2>Before and after</h2>", _before_and_after(runs)]
    body += ["<h2>What ran</h2>", _each(runs, _what_ran)]
    body += ["<h2>Where time and tokens went</h2>", _each(runs, _spent)]
    body += ["<h2>Completions</h2>", _samples(runs)]
    template = parts(_TEMPLATE)
    tokens = _tokens(runs)
    return document(
        f"Run {title}",
        "\n".join(body) + template["body"],
        style=template["style"],
        script=template["script"],
        data={"tokens": tokens},
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _each(runs: Sequence[Run], part: Callable[[Run], str]) -> str:
    """A part of each run, under its name where there are several."""
    if len(runs) == 1:
        return part(runs[0])
    return "\n".join(f"<h3>{_text(run.name)}</h3>{part(run)}" for run in runs)


def _mean(run: Run, tag: str) -> float:
    values = [row[tag] for row in run.steps if math.isfinite(row.get(tag, math.nan))]
    return float(np.mean(values)) if values else math.nan


def _total(run: Run, tag: str) -> float:
    values = (row.get(tag, 0.0) for row in run.steps)
    return float(sum(value for value in values if math.isfinite(value)))


# -- the head ------------------------------------------------------------------------


def _state(run: Run) -> str:
    if run.goes_on:
        return "goes on"
    if not run.summary:
        return "stopped"
    return "ended early" if run.summary.get("ended") else "finished"


def _figures(runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        accuracies = [
            section(run.summary, k).get("accuracy") for k in ("base", "final")
        ]
        before, after = (f"{_percent(x)}%" if _percent(x) else "" for x in accuracies)
        spent = run.summary.get("wall_seconds")
        seconds = spent if is_number(spent) else _total(run, "seconds/step")
        steps = f"{run.done} of {run.config.get('steps')}"
        trouble = str(len(findings(run)))
        rows.append((steps, _state(run), before, after, duration(seconds), trouble))
    if len(runs) > 1:
        head = ("run", "steps", "", "before", "after", "time", "findings")
        names = (run.name for run in runs)
        return table(head, [(n, *row) for n, row in zip(names, rows, strict=True)])
    ((steps, state, before, after, time, trouble),) = rows
    labels = [(steps, f"steps, {state}"), (time, "time"), (trouble, "findings")]
    labels += [(before, "accuracy before")] if before else []
    labels += [(after, "accuracy after")] if after else []
    return cards(labels)


# -- what ran ------------------------------------------------------------------------


def _what_ran(run: Run) -> str:
    identity, start = section(run.manifest, "identity"), section(run.manifest, "start")
    model = section(run.config, "model")
    facts = [
        ("base", model.get("path") or model.get("maker") or "unknown"),
        ("code", start.get("commit", "unknown")),
        ("devices", start.get("devices", "unknown")),
        ("machine", start.get("machine", "unknown")),
        ("last start", start.get("time", "unknown")),
        *((f"hosts: {k}", v) for k, v in section(identity, "hosts").items()),
        *sorted(section(identity, "versions").items()),
    ]
    changed = [
        (key, json.dumps(value)[:_MOST_OF_A_VALUE])
        for key, value in sorted(run.changes.items())
    ]
    accepted = [
        (row.get("after"), change.get("key"), _short(change))
        for row in run.history
        for change in row.get("changes") or []
        if isinstance(change, Mapping)
    ]
    text = table(("what", "value"), facts)
    text += "<p>What its config says other than <code>configs/base.py</code>:</p>"
    text += table(("key", "value"), changed)
    if accepted:
        text += "<p>Changed from one start to the next:</p>"
        text += table(("after step", "key", "before and now"), accepted)
    return text


def _short(change: Mapping[str, Any]) -> str:
    pair = (json.dumps(change.get(key))[:80] for key in ("before", "now"))
    return " -> ".join(pair)


# -- health --------------------------------------------------------------------------


def _health(runs: Sequence[Run]) -> str:
    found = {run.name: findings(run) for run in runs}
    several = len(runs) > 1
    fine = [name for name, of_run in found.items() if not of_run]
    whose = f" of {', '.join(fine)}" if several else ""
    text = f"<p>Nothing was found{_text(whose)}.</p>" if fine else ""
    rows = [
        (name, f.kind, f.steps, f.text)
        for name, of_run in found.items()
        for f in of_run
    ]
    if not rows:
        return text
    head = ("run", "what", "steps", "said")
    if not several:
        head, rows = head[1:], [row[1:] for row in rows]
    return text + f'<p class="bad">Found: {len(rows)}</p>' + table(head, rows)


# -- curves --------------------------------------------------------------------------


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The mean of each point and those around it: `1 / _SMOOTHED` of a run."""
    half = max(len(points) // (2 * _SMOOTHED), min(1, len(points) // 8))
    values = np.array([value for _, value in points], np.float64)
    return [
        (step, float(values[max(0, i - half) : i + half + 1].mean()))
        for i, (step, _) in enumerate(points)
    ]


def _curves(runs: Sequence[Run]) -> str:
    charts = []
    if len(runs) == 1:
        for title, tags in HEADLINE.items():
            series = _of_one(runs[0], tags)
            charts += [lines(title, series)] if series else []
    else:
        groups = arms(runs)
        for tag in dict.fromkeys(tag for tags in HEADLINE.values() for tag in tags):
            series = [
                s
                for i, (name, members) in enumerate(groups.items())
                for s in _of_arm(name, members, tag, i)
            ]
            charts += [lines(tag, series)] if series else []
    note = (
        f"A line is the mean over 1/{_SMOOTHED} of the run, or three steps; what is"
        " faint is each step."
    )
    if len(runs) > 1:
        note = (
            "Runs that differ in their seed alone are one line, their mean, in a 95%"
            " interval (Student's t over the runs). " + note
        )
    if not charts:
        return '<p class="soft">No step is done yet.</p>'
    return f'<p class="soft">{note}</p><div class="plots">{"".join(charts)}</div>'


def _of_one(run: Run, tags: Sequence[str]) -> list[Series]:
    found = []
    for colour, tag in enumerate(tags):
        if points := run.series(tag):
            raw = () if tag.startswith("eval/") else points
            line = smoothed(points) if raw else points
            found.append(Series(label=tag, points=line, raw=raw, colour=colour))
    return found


def arms(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in their seed alone together, by what sets them apart."""
    keyed: dict[str, list[Run]] = {}
    for run in runs:
        own = {k: v for k, v in run.changes.items() if k != "seed"}
        keyed.setdefault(json.dumps(own, sort_keys=True), []).append(run)
    firsts = [members[0] for members in keyed.values()]
    telling = _telling(_differing(runs, firsts), firsts)
    named: dict[str, list[Run]] = {}
    for members in keyed.values():
        name = members[0].name
        if len(members) > 1:
            said = [_said(key, of[members[0].name]) for key, of in telling]
            name = f"{', '.join(said)[:80]} ({len(members)} seeds)".strip()
        while name in named:
            name += "'"
        named[name] = members
    return named


def _said(key: str, value: str) -> str:
    """A setting in short: a word speaks for itself, a number needs its key."""
    return value.strip('"') if value[:1] == '"' else f"{key.rpartition('.')[2]}={value}"


def _telling(
    apart: Sequence[tuple[str, dict[str, str]]], among: Sequence[Run]
) -> list[tuple[str, dict[str, str]]]:
    """Few of the keys in which runs differ, that still tell them all apart."""
    chosen: list[tuple[str, dict[str, str]]] = []

    def kinds(keys) -> int:
        return len({tuple(of[run.name] for _, of in keys) for run in among})

    while apart:
        best = max(apart, key=lambda row: kinds([*chosen, row]))
        if kinds([*chosen, best]) == kinds(chosen):
            break
        chosen.append(best)
    return chosen


def _differing(
    runs: Sequence[Run], among: Sequence[Run]
) -> list[tuple[str, dict[str, str]]]:
    """Keys in which some runs differ, each with the value of every run by its name."""
    values = {run.name: flatten(run.config) for run in runs}
    rows = []
    for key in sorted({key for run in runs for key in run.changes}):
        of = {name: json.dumps(config.get(key))[:60] for name, config in values.items()}
        if len({of[run.name] for run in among}) > 1:
            rows.append((key, of))
    return rows


def _of_arm(name: str, members: Sequence[Run], tag: str, colour: int) -> list[Series]:
    raw = [points for run in members if (points := run.series(tag))]
    curves = [dict(smoothed(points)) for points in raw]
    if not curves:
        return []
    if len(curves) == 1:
        points = [*curves[0].items()]
        return [Series(label=name, points=points, raw=raw[0], colour=colour)]
    mean, band = [], []
    for step in sorted(set.intersection(*map(set, curves))):
        values = [curve[step] for curve in curves]
        mean.append((step, float(np.mean(values))))
        band.append((step, *t_interval(values)))
    return [Series(label=name, points=mean, band=band, colour=colour)]


# -- before and after ----------------------------------------------------------------


def _evaluations(run: Run) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
    """(part of the problems, "before" or "after", its figures)."""
    for key, word in (("base", "before"), ("final", "after")):
        whole = section(run.summary, key)
        found = [("all problems", whole)]
        for by, prefix in (("by_source", ""), ("by_level", "level ")):
            parts_of = section(whole, by)
            if len(parts_of) > 1:
                found += [(f"{prefix}{k}", section(parts_of, k)) for k in parts_of]
        for label, figures in found:
            if is_number(figures.get("accuracy")):
                yield label, word, figures


def _interval(figures: Mapping[str, Any]) -> tuple[float, float] | None:
    pair = figures.get("accuracy_interval")
    fits = isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair))
    return (float(pair[0]), float(pair[1])) if fits else None


def _before_and_after(runs: Sequence[Run]) -> str:
    rows, cells = [], []
    for run in runs:
        found = list(_evaluations(run))
        order = list(dict.fromkeys(label for label, _, _ in found))
        for label, word, figures in sorted(found, key=lambda p: order.index(p[0])):
            whose = f"{run.name}: {label}" if len(runs) > 1 else label
            accuracy, interval = float(figures["accuracy"]), _interval(figures)
            rows.append((f"{whose}, {word}", accuracy, interval, int(word == "before")))
            cells.append(
                (
                    whose,
                    word,
                    figures.get("problems", ""),
                    _percent(accuracy),
                    _range(interval or (math.nan, math.nan)),
                    _percent(figures.get("greedy_accuracy")),
                    _percent(figures.get("truncated")),
                )
            )
    if not rows:
        return '<p class="soft">Nothing was evaluated, or the run has not ended.</p>'
    head = ("problems", "when", "count", "accuracy, %", "95% interval", "greedy, %")
    chart = dots("Accuracy, %, with 95% intervals over problems", rows[:40])
    return f'<div class="plots">{chart}</div>' + table((*head, "truncated, %"), cells)


def _range(interval: tuple[float, float]) -> str:
    return " to ".join(map(_percent, interval))


def _percent(value: Any) -> str:
    return f"{100 * value:.1f}" if is_number(value) else ""


def _compared(runs: Sequence[Run]) -> str:
    rows, cells = [], []
    for i, (name, members) in enumerate(arms(runs).items()):
        finals = [section(run.summary, "final") for run in members]
        finals = [f for f in finals if is_number(f.get("accuracy"))]
        values = [float(f["accuracy"]) for f in finals]
        if not values:
            cells.append((name, len(members), "", "", ""))
            continue
        mean = float(np.mean(values))
        interval, over = t_interval(values), f"Student's t over {len(values)} runs"
        if not interval:
            interval, over = _interval(finals[0]), "over problems"
        rows.append((name, mean, interval, i))
        said = _range(interval) if interval else ""
        cells.append((name, len(members), _percent(mean), said, over))
    chart = dots("Accuracy at the end, %, with 95% intervals", rows) if rows else ""
    head = ("runs", "count", "accuracy at the end, %", "95% interval", "interval")
    differ = [(key, *of.values()) for key, of in _differing(runs, runs)]
    return (
        f'<div class="plots">{chart}</div>'
        + table(head, cells)
        + (table(("key", *(run.name for run in runs)), differ) if differ else "")
    )


# -- time and tokens -----------------------------------------------------------------


def _spent(run: Run) -> str:
    if not run.steps:
        return ""
    phases = dict.fromkeys(
        key
        for row in run.steps
        for key in row
        if key.startswith("seconds/") and key != "seconds/step"
    )
    seconds = {key.partition("/")[2]: _total(run, key) for key in phases}
    rest = _total(run, "seconds/step") - sum(seconds.values())
    seconds["other"] = max(rest, 0.0)
    whole = sum(seconds.values()) or 1.0
    time = [
        (f"{name}, {100 * spent / whole:.1f}%", spent)
        for name, spent in sorted(seconds.items(), key=lambda part: -part[1])
    ]
    sampled = _total(run, "sampling/tokens")
    flow = [
        ("sampled", sampled),
        ("trained on, with prompts", _total(run, "packing/tokens")),
    ]
    facts = [
        ("groups all right, dropped", _mean(run, "sampling/solve_all"), "share"),
        ("groups all wrong, dropped", _mean(run, "sampling/solve_none"), "share"),
        ("groups dropped for their age", _total(run, "sampling/aged_out"), "in all"),
        ("padding of packed rows", _mean(run, "packing/padding"), "share"),
        ("rounds of sampling", _mean(run, "sampling/rounds"), "a step"),
        ("sampling", _mean(run, "speed/sampling_tokens"), "tokens a second"),
        ("updating", _mean(run, "speed/update_tokens"), "tokens a second"),
    ]
    known = [(what, value, unit) for what, value, unit in facts if value == value]
    return (
        '<div class="plots">'
        + bars("Seconds of the steps, by phase", time, unit=" s")
        + bars("Tokens", flow)
        + "</div>"
        + table(("of what", "mean", "unit"), known)
    )


# -- completions ---------------------------------------------------------------------


def _samples(runs: Sequence[Run]) -> str:
    """Completions by step, as many as fit, spread over the run."""
    every = [(run, row) for run in runs for row in run.samples]
    if not every:
        return '<p class="soft">None was kept.</p>'
    several = len(runs) > 1
    made = [(row["step"], _sample(run, row, several)) for run, row in every]
    kept = _spread(made, lambda pair: len(pair[1].encode()), _MOST_TEXT)
    kinds = ("best", "worst", "suspect", "truncated", "repeated", "right", "wrong")
    options = "".join(f"<option>{kind}</option>" for kind in kinds)
    names = "".join(f"<option>{_text(run.name)}</option>" for run in runs)
    last = max(step for step, _ in kept)
    left = (
        f" {len(every) - len(kept)} others are in samples.jsonl."
        if len(kept) < len(every)
        else ""
    )
    return (
        '<div class="filters"><select id="kind" aria-label="Which">'
        f'<option value="">all completions</option>{options}</select>'
        + (
            '<select id="whose" aria-label="Run"><option value="">all runs</option>'
            f"{names}</select>"
            if several
            else ""
        )
        + '<label>from step <input id="from" type="number" min="0" value="0"></label>'
        f'<label>to <input id="to" type="number" min="0" value="{last}"></label>'
        f'<span id="shown" class="soft"></span></div><p class="soft">{left}</p>'
        + '<div class="list">'
        + "".join(text for _, text in kept)
        + "</div>"
    )


def _sample(run: Run, row: Mapping[str, Any], several: bool) -> str:
    right = row.get("correct") is True
    kinds = [*(row.get("shown_as") or []), "right" if right else "wrong"]
    if row.get("finish_reason") == "length":
        kinds.append("truncated")
    if row.get("repeated") is True:
        kinds.append("repeated")
    suspect = row.get("suspect") or ""
    kinds += ["suspect"] if suspect else []
    kinds = list(dict.fromkeys(kinds))
    facts = [
        f"step {row['step']}",
        *([run.name] if several else []),
        f"reward {shown(row['reward'])}",
        *kinds,
        *([f"rule {row['rule']}"] if "rule" in row else []),
        *([f"{row['tokens']} tokens"] if "tokens" in row else []),
    ]
    parts_of = row.get("components")
    if isinstance(parts_of, Mapping):
        facts += [f"{name} {shown(value)}" for name, value in parts_of.items()]
    why = f'<p class="bad">Suspect: {_text(suspect)}.</p>' if suspect else ""
    return (
        f'<details class="sample {"right" if right else "wrong"}"'
        f' data-step="{row["step"]}" data-run="{_text(run.name)}"'
        f' data-kinds="{_text(" ".join(kinds))}">'
        f"<summary>{_text(' · '.join(facts))}</summary>{why}"
        f"<pre>{_text(_cut(row['problem']))}</pre>"
        f'<p class="soft">Gold: {_text(_cut(row["gold"]))}</p>'
        f"<pre>{_text(_cut(row['completion']))}</pre></details>"
    )


def _cut(text: str) -> str:
    if len(text) <= _MOST_OF_A_TEXT:
        return text
    half = _MOST_OF_A_TEXT // 2
    return f"{text[:half]}\n[... {len(text):,} characters in all ...]\n{text[-half:]}"


def _spread(rows: Sequence[Any], size: Callable[[Any], int], most: int) -> list[Any]:
    """Rows whose sizes fit together: all, or every second, or every fourth ..."""
    sizes, apart = [size(row) for row in rows], 1
    while sum(sizes[::apart]) > most and apart < len(rows):
        apart *= 2
    return list(rows[::apart])


def _tokens(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Rows of tokens.jsonl for the page's script."""
    every = [(run, row) for run in runs for row in run.tokens]
    apart = max(1, math.ceil(len(every) / _MOST_TOKEN_ROWS))
    columns = ("texts", "ids", "sampler", "trainer", "after", "versions")
    rows = [
        {
            "run": run.name,
            "step": row["step"],
            "problem": str(row.get("problem", ""))[:200],
            "length": len(row["ids"]),
            **{k: row[k] for k in ("advantage", "eps_low", "eps_high")},
            **{k: row[k][:_MOST_TOKENS] for k in columns},
        }
        for run, row in every[::apart]
    ]
    return _spread(rows, lambda row: len(embedded(row).encode()), _MOST_OF_TOKENS)
