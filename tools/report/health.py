"""Finds problems in a run: alarms, skipped updates, falling accuracy, early ends."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from configs import base
from configs.schema import parse
from rl.alarms import Alarms
from tools.report.reading import Run, interval_of, part

_LEAST_DROP = 0.01  # of accuracy; a smaller decline is not reported


class Finding(NamedTuple):
    """Describes one problem of a run, or several of one kind."""

    steps: str  # the steps with the problem, such as "3, 5-8"; empty if unknown
    kind: str  # "alarm", "update", "decline", "dump" or "end"
    text: str


def findings(run: Run) -> list[Finding]:
    """Returns all problems of a run, grouped by kind; empty for a healthy run."""
    found = _alarms(run)
    skipped = [row for row in run.steps if row.get("policy/skipped", 0) > 0]
    if skipped:
        count = int(sum(row["policy/skipped"] for row in skipped))
        text = f"updates skipped: {count} (loss or gradient not finite)"
        steps = [int(row["step"]) for row in skipped]
        found.append(Finding(_spans(steps), "update", text))
    empty = [int(row["step"]) for row in run.steps if "policy/loss" not in row]
    if empty:
        text = f"steps without an update: {len(empty)} (too few informative groups)"
        found.append(Finding(_spans(empty), "update", text))
    found += _declines(run)
    for name, about in run.dumps.items():
        cause = about.get("cause", "an update was not finite")
        found.append(Finding(name, "dump", f"{cause}; see dumps/{name}"))
    return found + _end(run)


def _alarms(run: Run) -> list[Finding]:
    """Returns the alarms that the run's metrics set off, or an error in its config."""
    try:
        settings = part(run.config, "alarms")
        alarms = Alarms(parse(base.Alarms, settings, "alarms"))
        held: dict[str, tuple[list[int], str]] = {}
        for row in run.steps:
            figures = {key: value for key, value in row.items() if key != "step"}
            for name, text in alarms.check(figures)[0].items():
                steps, _ = held.get(name, ([], ""))
                held[name] = [*steps, int(row["step"])], text
    except (TypeError, ValueError) as error:
        return [Finding("", "alarm", f"config.json: {error}")]
    return [
        Finding(_spans(steps), "alarm", f"{name}: {text}")
        for name, (steps, text) in held.items()
    ]


def _declines(run: Run) -> list[Finding]:
    """Finds held-out accuracies that end clearly below their best value.

    A decline is clear if it exceeds 0.01 and is significant at the 5% level. The level
    is Bonferroni-corrected for the number of evaluations. The test treats evaluations
    on the same problems as independent, which makes it conservative.
    """
    found = []
    ends = [part(run.summary, key) for key in ("final", "base")]
    for name in ("", *part(ends[0], "sets")):
        scores = run.series(f"eval/{name}/accuracy" if name else "eval/accuracy")
        sets = [part(end, "sets", name) if name else end for end in ends]
        # With `eval.problems` the curve has fewer problems than the final evaluation.
        figures = [part(of_set, "curve") or of_set for of_set in sets]
        interval = next(filter(None, map(interval_of, figures)), None)
        if not interval or len(scores) < 2:
            continue
        # of the difference of two accuracies
        error = math.sqrt(2) * (interval[1] - interval[0]) / (2 * 1.96)
        least = float(stats.norm.ppf(1 - 0.025 / len(scores))) * error
        last_step, last = scores[-1]
        step, best = max(scores, key=lambda score: score[1])
        if best - last > max(least, _LEAST_DROP):
            text = (
                f"held-out accuracy{' on ' if name else ''}{name} ended at"
                f" {100 * last:.1f}%, below its best of {100 * best:.1f}% at step"
                f" {step:g}"
            )
            found.append(Finding(f"{last_step:g}", "decline", text))
    return found


def _end(run: Run) -> list[Finding]:
    texts = [
        f"{text}: {reason}"
        for key, text in (("ended", "ended early"), ("unhealthy", "ended unhealthy"))
        if (reason := run.summary.get(key))
    ]
    if not run.summary and not run.running:
        texts = ["the run was stopped or killed, or failed; resume it"]
    return [Finding(str(run.done), "end", text) for text in texts]


def _spans(steps: list[int]) -> str:
    """Formats ascending steps as at most eight ranges, such as "3, 5-8"."""
    spans = np.split(steps, np.flatnonzero(np.diff(steps) != 1) + 1)
    shown = [f"{s[0]}-{s[-1]}" if len(s) > 1 else f"{s[0]}" for s in spans]
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if shown[8:] else "")
