"""An evaluation as one HTML file that needs no network: plots, and completions."""

import collections
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Scored, by_problem, repeats_itself
from rl.types import Problem
from tools.evaluation.report import FIVE, PUBLISHED, drawing, subject
from tools.page import document, parts

_TEMPLATE = pathlib.Path(__file__).with_suffix(".html")


def page(
    results: Mapping[str, Any],
    problems: Mapping[str, Sequence[Problem]],
    scored: Mapping[str, Sequence[Scored]],
    *,
    max_characters: int = 32_000_000,
) -> str:
    """Renders the page; problems and completions are by benchmark.

    Args:
      results: what results.json holds.
      problems: those that were asked.
      scored: their completions.
      max_characters: of completions in the page. Where all are longer together, the
        page holds the first samples of every problem, as many as fit, at least one.
    """
    texts = [s for group in scored.values() for s in group]
    embedded = _samples_that_fit(texts, max_characters)
    drawn = max((s.drawn.sample + 1 for s in texts), default=0)
    conditions = results["conditions"].get("drawing", {})
    payload = {
        "model": results["model"],
        "drawn": drawing(conditions),
        "verifier": results["verifier"],
        "conditions": conditions | {"verifier": results["verifier"]},
        "embedded": embedded if embedded < drawn else None,
        "published": [
            {
                "name": f"{name} ({how})",
                "scores": dict(zip(FIVE, scores, strict=True)),
            }
            for name, scores, _, how in PUBLISHED
        ],
        "benchmarks": {
            name: dict(result)
            | {"problems": _rows(problems[name], scored[name], embedded)}
            for name, result in results["benchmarks"].items()
        },
    }
    title = f"Evaluation of {results['model']}"
    return document(title, data=payload, **parts(_TEMPLATE))


def _samples_that_fit(scored: Sequence[Scored], most: int) -> int:
    lengths = collections.Counter()
    for s in scored:
        lengths[s.drawn.sample] += len(s.drawn.completion)
    samples = sorted(lengths)
    totals = itertools.accumulate(lengths[sample] for sample in samples)
    fit = [s for s, total in zip(samples, totals, strict=True) if total <= most]
    return 1 + max(fit, default=0)


def _rows(
    problems: Sequence[Problem], scored: Sequence[Scored], embedded: int
) -> list[dict[str, Any]]:
    groups = by_problem(scored)
    return [
        {
            "id": problem.id,
            "problem": problem.problem,
            "answers": problem.answers,
            "level": problem.level,
            "subject": subject(problem),
            "samples": [
                {
                    "sample": s.drawn.sample,
                    "correct": s.correct,
                    "answer": s.answer,
                    "rule": s.verdict.rule,
                    "tokens": s.drawn.tokens,
                    "finish_reason": s.drawn.finish_reason,
                    "repeats": repeats_itself(s.drawn.completion),
                    "completion": s.drawn.completion
                    if s.drawn.sample < embedded
                    else None,
                }
                for s in sorted(groups[problem.id], key=lambda s: s.drawn.sample)
            ],
        }
        for problem in problems
        if problem.id in groups
    ]
