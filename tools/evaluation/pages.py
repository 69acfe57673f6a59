"""Renders evaluations and comparisons as HTML pages: tables, charts, completions."""

import collections
import html
import itertools
import pathlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rl.evaluate import Scored, by_problem
from rl.types import Problem
from tools import page
from tools.evaluation.benchmarks import title
from tools.evaluation.compare import second_figures
from tools.evaluation.files import read_completions, read_verdicts
from tools.evaluation.report import FIVE, PUBLISHED, drawing
from tools.evaluation.tex import formula, to_html

_MOST_CHARACTERS = 8_000  # of a completion
_Row = tuple[str, float, tuple[float, float] | None, int]  # as of `page.dots`
_MOST_FLIPS = 200  # of a benchmark, each way, that are shown with completions


def results_page(
    results: Mapping[str, Any],
    problems: Mapping[str, Sequence[Problem]],
    scored: Mapping[str, Sequence[Scored]],
    *,
    max_characters: int = 32_000_000,
) -> str:
    """Returns the page of an evaluation.

    Args:
      results: the content of results.json.
      problems: the evaluated problems of each benchmark.
      scored: their completions.
      max_characters: of completions in the page. If all are longer together, the page
        holds the first samples of every problem, as many as fit, at least one.
    """
    shown = _samples_that_fit([s for of in scored.values() for s in of], max_characters)
    facts = results["conditions"].get("drawing", {})
    facts |= {"reward": results.get("reward"), "verifier": results["verifier"]}
    body = page.table(("condition", "value"), [(k, str(v)) for k, v in facts.items()])
    body = page.details("Conditions", body)
    for name, result in results["benchmarks"].items():
        charts = [page.dots("Accuracy, %", _accuracies(name, result, results["model"]))]
        parts = [
            (f"{word} {label} ({part['problems']})", part["accuracy"], None, 0)
            for key, word in (("by_level", "level"), ("by_subject", ""))
            for label, part in result[key].items()
        ]
        charts += [page.dots("By level and subject (problems), %", parts[:40])]
        sampled = [
            (key, value, result.get(f"{key}_interval"), 0)
            for key, value in result.items()
            if "@" in key and not key.endswith("_interval")
        ]
        charts += [page.dots("Of k samples, %", sampled)]
        groups = by_problem(scored[name])
        rows = [
            _solved(problem, groups[problem.id], shown)
            for problem in problems[name]
            if problem.id in groups
        ]
        body += page.section(
            result["title"],
            page.plots(charts),
            page.filtered(
                ("solved", "mixed", "unsolved", "truncated", "repeats"), rows
            ),
        )
    words = f"Completions: {drawing(results['conditions'].get('drawing', {}))}."
    if shown < max(
        (s.drawn.sample + 1 for of in scored.values() for s in of), default=0
    ):
        words += f" The first {shown} of each problem are here."
    return page.document(f"Evaluation of {results['model']}", page.note(words) + body)


def _accuracies(name: str, result: Mapping[str, Any], model: str) -> list[_Row]:
    rows: list[_Row] = [(model, result["accuracy"], result["accuracy_interval"], 0)]
    if name in FIVE:
        place = FIVE.index(name)
        rows += [(other, row[place] / 100, None, 1) for other, row, _, _ in PUBLISHED]
    return rows


def _samples_that_fit(scored: Sequence[Scored], most: int) -> int:
    lengths: collections.Counter[int] = collections.Counter()
    for s in scored:
        lengths[s.drawn.sample] += len(s.drawn.completion)
    samples = sorted(lengths)
    totals = itertools.accumulate(lengths[sample] for sample in samples)
    fit = [s for s, total in zip(samples, totals, strict=True) if total <= most]
    return 1 + max(fit, default=0)


def _solved(problem: Problem, group: Sequence[Scored], shown: int) -> tuple[str, str]:
    """Returns the kinds of a problem and its block."""
    right = sum(s.correct for s in group)
    kinds = "solved" if right == len(group) else "mixed" if right else "unsolved"
    cut = any(s.drawn.finish_reason == "length" for s in group)
    kinds += " truncated" if cut else ""
    kinds += " repeats" if any(bool(s.drawn.repetitive) for s in group) else ""
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
    body = f'<div class="text">{to_html(problem.problem)}</div>'
    body += f'<p class="soft">Gold: {" or ".join(map(formula, problem.answers))}</p>'
    level = f", level {problem.level}" if problem.level is not None else ""
    summary = f"{problem.id}: {right} of {len(group)} right{level}"
    return kinds, page.details(summary, body + "".join(samples))


# -- comparisons ---------------------------------------------------------------------


class _Sample(NamedTuple):
    """Holds a completion; those with equivalent answers have the same `kind`."""

    kind: Hashable
    answer: str | None
    correct: bool
    completion: str


def compare_page(
    result: Mapping[str, Any],
    arms: Sequence[Sequence[pathlib.Path]],
    problems: Mapping[str, Sequence[Problem]],
) -> str:
    """Returns the page of a comparison.

    Every problem is there with each arm's answers, equivalent ones together, and can be
    linked to as `#BENCHMARK/ID`. Where the first arm and another differ on whether it
    is solved, a completion of each answer is shown side by side, for the first
    `_MOST_FLIPS` problems each way.

    Args:
      result: of `tools.evaluation.compare.compare`.
      arms: the folders that were compared.
      problems: the evaluated problems of each benchmark.
    """
    names = [arm["name"] for arm in result["arms"]]
    samples = [_samples(arm) for arm in arms]
    body = _summary(result)
    for name in result["benchmarks"]:
        of_id = {problem.id: problem for problem in problems[name]}
        parts = [pair["benchmarks"][name] for pair in result["pairs"]]
        flips = {w: {id for p in parts for id in p[w]} for w in ("lost", "gained")}
        blocks: dict[str, list[str]] = {"lost": [], "gained": [], "no flip": []}
        for id in samples[0][name]:
            kinds = [word for word, found in flips.items() if id in found]
            block = blocks[kinds[0] if kinds else "no flip"]
            whole = bool(kinds) and len(block) < _MOST_FLIPS
            columns = [
                _column(arm, of_arm[name][id], whole)
                for arm, of_arm in zip(names, samples, strict=True)
            ]
            block.append(_problem(name, of_id[id], columns))
        body += page.section(
            title(name),
            *(
                page.details(f"{word.capitalize()} ({len(block)})", "".join(block))
                for word, block in blocks.items()
                if block
            ),
        )
    return page.document(f"{', '.join(names[1:])} against {names[0]}", body)


def _samples(arm: Sequence[pathlib.Path]) -> dict[str, dict[str, list[_Sample]]]:
    """Returns the completions of an arm's models by benchmark and problem id."""
    samples: dict[str, dict[str, list[_Sample]]] = {}
    for model, folder in enumerate(arm):
        texts: dict[tuple[str, str], list[str]] = {}
        for name, drawn_of in read_completions(folder).items():
            for drawn in sorted(drawn_of, key=lambda drawn: drawn.sample):
                texts.setdefault((name, drawn.id), []).append(drawn.completion)
        for name, of_name in read_verdicts(folder).items():
            for id, row in of_name.items():
                for judged, text in zip(row, texts[name, id], strict=True):
                    # Classes are numbered within one folder.
                    kind = None if judged.kind is None else (model, judged.kind)
                    samples.setdefault(name, {}).setdefault(id, []).append(
                        _Sample(
                            "right" if judged.correct else kind,
                            judged.answer,
                            judged.correct,
                            text,
                        )
                    )
    return samples


def _summary(result: Mapping[str, Any]) -> str:
    first, *others = result["arms"]
    rows = []
    for name in result["benchmarks"]:
        parts = [pair["benchmarks"][name] for pair in result["pairs"]]
        accuracy = f"{100 * parts[0]['first']:.1f}"
        rows.append((title(name), first["name"], first["drawn"], accuracy, *[""] * 5))
        rows += [
            ("", arm["name"], arm["drawn"], *second_figures(part))
            for arm, part in zip(others, parts, strict=True)
        ]
    head = ["benchmark", "arm", "drawn", "accuracy, %", "difference", "p", "about"]
    words = "".join(
        page.note(f"Not drawn alike: {arm['name']} {arm['drawn']}.", "warning")
        for arm, pair in zip(others, result["pairs"], strict=True)
        if not pair["drawn_alike"]
    )
    return words + page.table([*head, "lost", "gained"], rows)


def _problem(name: str, problem: Problem, columns: Sequence[str]) -> str:
    anchor = html.escape(f"{name}/{problem.id}")
    gold = " or ".join(map(formula, problem.answers))
    return (
        f'<article id="{anchor}"><p><a href="#{anchor}">{html.escape(problem.id)}</a>'
        f'</p><div class="text">{to_html(problem.problem)}</div>'
        f'<p class="soft">Gold: {gold}</p>{page.columns(columns)}</article>'
    )


def _column(arm: str, samples: Sequence[_Sample], whole: bool) -> str:
    """Returns an arm's answers to a problem, the most frequent first."""
    clusters: dict[Hashable, list[_Sample]] = {}
    for sample in samples:
        clusters.setdefault(sample.kind, []).append(sample)
    body = ""
    for members in sorted(clusters.values(), key=len, reverse=True):
        first = members[0]
        answer = "no answer" if first.answer is None else formula(first.answer)
        mark = "right" if first.correct else "wrong"
        body += f'<p class="{mark}">{len(members)} × {answer}</p>'
        if whole:
            text = first.completion
            cut = (
                "" if len(text) <= _MOST_CHARACTERS else f" ({len(text):,} characters)"
            )
            text = to_html(text[:_MOST_CHARACTERS])
            body += page.details("completion" + cut, f'<div class="text">{text}</div>')
    right = sum(sample.correct for sample in samples)
    count = f'<p class="soft">{right} of {len(samples)} right</p>'
    return f"<h4>{html.escape(arm)}</h4>{count}{body}"
