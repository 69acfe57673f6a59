"""Renders an evaluation as an HTML page with tables, a chart and completions."""

import collections
import html
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Scored, by_problem
from rl.types import Problem
from tools import page
from tools.evaluation.report import tables
from tools.tables import page as render

_KINDS = ("solved", "mixed", "unsolved", "truncated", "repeats")


def results_page(
    results: Mapping[str, Any],
    problems: Mapping[str, Sequence[Problem]],
    scored: Mapping[str, Sequence[Scored]],
    *,
    max_characters: int = 32_000_000,
) -> str:
    """Returns the HTML page of an evaluation, where `#BENCHMARK/ID` links to a problem.

    Args:
      results: content of results.json.
      problems: problems by benchmark.
      scored: judged completions by benchmark.
      max_characters: limit on the characters of completions. If it is exceeded, the
        page has only the first completions of each problem, at least one.
    """
    shown, samples = _samples_that_fit(scored, max_characters)
    scores = [
        (result["title"], result["accuracy"], result["accuracy_interval"], 0)
        for result in results["benchmarks"].values()
    ]
    body = page.plots([page.dots("Accuracy, %, with 95% intervals", scores)])
    if shown < samples:
        body += page.note(
            f"Only the first {shown} completions of each problem are shown."
        )
    for name, result in results["benchmarks"].items():
        groups = by_problem(scored[name])
        blocks = [
            _block(f"{name}/{problem.id}", problem, groups[problem.id], shown)
            for problem in problems[name]
            if problem.id in groups
        ]
        body += page.section(result["title"], page.filtered(_KINDS, blocks, name=name))
    return render(f"Evaluation of {results['model']}", tables(results), body)


def _samples_that_fit(
    scored: Mapping[str, Sequence[Scored]], most: int
) -> tuple[int, int]:
    """Returns how many samples per problem fit (at least 1), and how many there are."""
    lengths: collections.Counter[int] = collections.Counter()
    for s in itertools.chain(*scored.values()):
        lengths[s.drawn.sample] += len(s.drawn.completion)
    samples = sorted(lengths)
    totals = itertools.accumulate(lengths[sample] for sample in samples)
    fit = [s for s, total in zip(samples, totals, strict=True) if total <= most]
    return 1 + max(fit, default=0), 1 + max(samples, default=-1)


def _block(
    anchor: str, problem: Problem, group: Sequence[Scored], shown: int
) -> tuple[str, str]:
    """Returns the kinds of a problem for the filter, and its completions as HTML."""
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
            page.tag("pre", html.escape(s.drawn.completion)),
            "right" if s.correct else "wrong",
        )
        for s in sorted(group, key=lambda s: s.drawn.sample)
        if s.drawn.sample < shown
    ]
    level = f", level {problem.level}" if problem.level is not None else ""
    summary = f"{problem.id}: {right} of {len(group)} right{level}"
    text = page.tag("div", html.escape(problem.problem), class_="text")
    gold = page.tag("p", html.escape(f"Gold: {' or '.join(problem.answers)}"))
    body = page.details(summary, text + gold + "".join(samples))
    return kinds, page.tag("div", body, id=anchor)
