"""Renders evaluations and comparisons as HTML pages: tables, charts, completions."""

import collections
import html
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Scored, by_problem
from rl.types import Problem
from tools import page
from tools.evaluation.benchmarks import title
from tools.evaluation.compare import comparison
from tools.evaluation.files import Judged, read_completions, read_verdicts
from tools.evaluation.report import FIVE, PUBLISHED, conditions, sampled, sampling
from tools.tables import Table, html_table

_MOST_CHARACTERS = 8_000  # of a completion
_MOST_FLIPS = 200  # of a benchmark, each way, that are shown with completions
Kinds = Sequence[tuple[Judged, str]]
"""Verdicts on the completions of one problem, each with the completion."""


def results_page(
    results: Mapping[str, Any],
    problems: Mapping[str, Sequence[Problem]],
    scored: Mapping[str, Sequence[Scored]],
    *,
    max_characters: int = 32_000_000,
) -> str:
    """Returns the page of an evaluation, of results.json.

    If all completions have more than `max_characters` together, the page holds the
    first samples of every problem that fit, at least one.
    """
    shown, samples = _samples_that_fit(scored, max_characters)
    note = f"Completions: {sampling(results['conditions'].get('drawing', {}))}."
    if shown < samples:
        note += f" The first {shown} of each problem are here."
    facts = html_table(Table("", conditions(results)))
    body = page.note(note) + page.details("Conditions", facts)
    for name, result in results["benchmarks"].items():
        rows = [(results["model"], result["accuracy"], result["accuracy_interval"], 0)]
        if name in FIVE:
            place = FIVE.index(name)
            rows += [(row, s[place] / 100, None, 1) for row, s, _, _ in PUBLISHED]
        levels = [
            (f"level {level} ({part['problems']})", part["accuracy"], None, 0)
            for level, part in result["by_level"].items()
        ]
        of_k = [(k, result[k], result[f"{k}_interval"], 0) for k in sampled(result)]
        charts = {
            "Accuracy, %": rows,
            "By level (problems), %": levels,
            "Of k samples, %": of_k,
        }
        groups = by_problem(scored[name])
        blocks = [
            _solved(problem, groups[problem.id], shown)
            for problem in problems[name]
            if problem.id in groups
        ]
        body += page.section(
            result["title"],
            page.plots([page.dots(label, dots) for label, dots in charts.items()]),
            page.filtered(
                ("solved", "mixed", "unsolved", "truncated", "repeats"), blocks
            ),
        )
    return page.document(f"Evaluation of {results['model']}", body)


def _samples_that_fit(
    scored: Mapping[str, Sequence[Scored]], most: int
) -> tuple[int, int]:
    """Returns how many samples of each problem fit, and how many there are."""
    lengths: collections.Counter[int] = collections.Counter()
    for s in itertools.chain(*scored.values()):
        lengths[s.drawn.sample] += len(s.drawn.completion)
    samples = sorted(lengths)
    totals = itertools.accumulate(lengths[sample] for sample in samples)
    fit = [s for s, total in zip(samples, totals, strict=True) if total <= most]
    return 1 + max(fit, default=0), 1 + max(samples, default=-1)


def _solved(problem: Problem, group: Sequence[Scored], shown: int) -> tuple[str, str]:
    """Returns the kinds of a problem and its block."""
    right = sum(s.correct for s in group)
    kinds = "solved" if right == len(group) else "mixed" if right else "unsolved"
    if any(s.drawn.finish_reason == "length" for s in group):
        kinds += " truncated"
    if any(bool(s.drawn.repetitive) for s in group):
        kinds += " repeats"
    samples = [
        page.details(
            f"{'right' if s.correct else 'wrong'}: {s.answer or 'no answer'}"
            f" ({s.verdict.rule}, {s.drawn.tokens} tokens)",
            f"<pre>{html.escape(s.drawn.completion)}</pre>",
            "right" if s.correct else "wrong",
        )
        for s in sorted(group, key=lambda s: s.drawn.sample)
        if s.drawn.sample < shown
    ]
    level = f", level {problem.level}" if problem.level is not None else ""
    summary = f"{problem.id}: {right} of {len(group)} right{level}"
    return kinds, page.details(summary, _problem(problem) + "".join(samples))


def _problem(problem: Problem) -> str:
    return (
        f'<div class="text">{html.escape(problem.problem)}</div>'
        f'<p class="soft">Gold: {html.escape(" or ".join(problem.answers))}</p>'
    )


def compare_page(
    result: Mapping[str, Any],
    arms: Sequence[Sequence[pathlib.Path]],
    problems: Mapping[str, Sequence[Problem]],
) -> str:
    """Returns the page of a comparison.

    It has every problem with each arm's answers, equivalent ones together, under the
    anchor `#BENCHMARK/ID`. Problems that flipped come first, with a completion of each
    answer for the first `_MOST_FLIPS` each way. `result` is of `compare`, `arms` are
    the folders that were compared.
    """
    names = [arm["name"] for arm in result["arms"]]
    samples = [_samples(arm) for arm in arms]
    body = ""
    for name, pair in zip(names[1:], result["pairs"], strict=True):
        note = "" if pair["drawn_alike"] else page.note("Not drawn alike.", "warning")
        body += page.section(name, note, html_table(Table("", comparison(pair))))
    for name in result["benchmarks"]:
        of_id = {problem.id: problem for problem in problems[name]}
        parts = [pair["benchmarks"][name] for pair in result["pairs"]]
        flips = {w: {id for p in parts for id in p[w]} for w in ("lost", "gained")}
        blocks: dict[str, list[str]] = {"lost": [], "gained": [], "no flip": []}
        for id in samples[0][name]:
            kind = next((word for word, ids in flips.items() if id in ids), "no flip")
            texts = kind != "no flip" and len(blocks[kind]) < _MOST_FLIPS
            columns = [
                f"<h4>{html.escape(arm)}</h4>{_answers(of_arm[name][id], texts)}"
                for arm, of_arm in zip(names, samples, strict=True)
            ]
            anchor = html.escape(f"{name}/{id}")
            blocks[kind].append(
                f'<article id="{anchor}"><p><a href="#{anchor}">{html.escape(id)}</a>'
                f"</p>{_problem(of_id[id])}{page.columns(columns)}</article>"
            )
        body += page.section(
            title(name),
            *(
                page.details(f"{word.capitalize()} ({len(block)})", "".join(block))
                for word, block in blocks.items()
                if block
            ),
        )
    return page.document(f"{', '.join(names[1:])} against {names[0]}", body)


def _samples(arm: Sequence[pathlib.Path]) -> dict[str, dict[str, list[Kinds]]]:
    """Returns an arm's judged completions by benchmark and id, one list per model."""
    found: dict[str, dict[str, list[Kinds]]] = {}
    for folder in arm:
        texts: dict[tuple[str, str], list[str]] = {}
        for name, drawn_of in read_completions(folder).items():
            for drawn in sorted(drawn_of, key=lambda drawn: drawn.sample):
                texts.setdefault((name, drawn.id), []).append(drawn.completion)
        for name, verdicts in read_verdicts(folder).items():
            for id, row in verdicts.items():
                pairs = list(zip(row, texts[name, id], strict=True))
                found.setdefault(name, {}).setdefault(id, []).append(pairs)
    return found


def _answers(models: Sequence[Kinds], texts: bool) -> str:
    """Returns an arm's answers to a problem, the most frequent first."""
    groups: dict[Any, list[tuple[Judged, str]]] = collections.defaultdict(list)
    for model, pairs in enumerate(models):
        for judged, text in pairs:
            # Classes are numbered within one model's folder.
            kind = None if judged.kind is None else (model, judged.kind)
            groups["right" if judged.correct else kind].append((judged, text))
    body = ""
    for members in sorted(groups.values(), key=len, reverse=True):
        judged, text = members[0]
        answer = "no answer" if judged.answer is None else html.escape(judged.answer)
        mark = "right" if judged.correct else "wrong"
        body += f'<p class="{mark}">{len(members)} × {answer}</p>'
        if texts:
            body += page.details("completion", page.text(text, _MOST_CHARACTERS))
    right = len(groups.get("right", ()))
    total = sum(map(len, models))
    return f'<p class="soft">{right} of {total} right</p>{body}'
