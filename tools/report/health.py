"""What went wrong in a run: each finding a line, none for a healthy one."""

from typing import NamedTuple

from rl.alarms import Alarms, Limits
from tools.report.reading import Run, section


class Finding(NamedTuple):
    """Something that is not as in a healthy run.

    Attributes:
      steps: at which it was seen; empty where it is of no step.
      kind: alarm | update | dump | end | file.
      text: what it was.
    """

    steps: str
    kind: str
    text: str


def findings(run: Run) -> list[Finding]:
    """All that speaks against a run's health, in the order of its kinds."""
    found = [Finding(steps, "alarm", text) for steps, text in _alarms(run)]
    skipped = [row for row in run.steps if row.get("policy/skipped", 0) > 0]
    if skipped:
        count = int(sum(row["policy/skipped"] for row in skipped))
        steps = _spans([int(row["step"]) for row in skipped])
        found.append(Finding(steps, "update", f"{count} updates skipped: not finite"))
    empty = [int(row["step"]) for row in run.steps if "policy/loss" not in row]
    if empty:
        text = f"{len(empty)} steps without an update: too few informative groups"
        found.append(Finding(_spans(empty), "update", text))
    for name, about in run.dumps.items():
        text = f"{about.get('cause', 'unknown')}; see dumps/{name}"
        found.append(Finding(name, "dump", text))
    found += _end(run)
    found += [Finding("", "file", text) for text in run.unreadable]
    return found


def _alarms(run: Run) -> list[tuple[str, str]]:
    """The run's own alarms over its figures: steps at which each held, and the last
    that it said."""
    try:
        alarms = Alarms(Limits(**section(run.config, "alarms")))
        held: dict[str, tuple[list[int], str]] = {}
        for row in run.steps:
            figures = {key: value for key, value in row.items() if key != "step"}
            for name, text in alarms.warnings(figures).items():
                steps, _ = held.get(name, ([], ""))
                held[name] = [*steps, int(row["step"])], text
    except (TypeError, ValueError) as error:
        return [("", f"its alarms cannot be read from config.json: {error}")]
    return [(_spans(steps), f"{name}: {said}") for name, (steps, said) in held.items()]


def _end(run: Run) -> list[Finding]:
    found = []
    for key, text in (("ended", "ended early"), ("unhealthy", "ended unhealthy")):
        if said := run.summary.get(key):
            found.append(Finding(str(run.done), "end", f"{text}: {said}"))
    if not run.summary and not run.goes_on:
        text = "no summary.json, and no process holds it: stopped or killed on its way"
        found.append(Finding(str(run.done), "end", text))
    return found


def _spans(steps: list[int]) -> str:
    """Steps in ascending order, as "3, 5-8"."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans]
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if shown[8:] else "")
