"""Counts the rows of a curation run, and renders the counts as tables and HTML."""

import collections
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rl.statistics import wilson_interval
from tools import page as pages
from tools.curation.evidence import Readings
from tools.curation.row import Row
from tools.tables import Table

EXAMPLES = 5  # example rows per reason or source
TITLE = "Curation report"
_MOST_CHARACTERS = 4_000  # of each example problem
_MOST_SOURCES = 30
_NO_LEVEL = "no level"
Steps = Mapping[str, Mapping[str, str]]  # meaning of each reason, by step and reason


def count(
    rows: Sequence[Row], steps: Steps, least: float, readings: Readings
) -> dict[str, Any]:
    """Returns the counts of summary.json: by step, reason, source, level and repair.

    Rows "with evidence" have a strength of at least `least`. "wrong golds" is the share
    of wrong ones among the golds in `readings`, with its 95% interval.
    """
    counts = collections.Counter
    kept = [row for row in rows if row.survives]
    sources: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        sources[row.source].append(row)
    by_source = {
        name: {
            "rows": len(some),
            "with evidence": sum(row.strength >= least for row in some),
            "kept": sum(row.survives for row in some),
            **_wrong_golds(*readings.get(name, (0, 0))),
            "reasons": dict(counts(next(iter(r.reasons)) for r in some if r.reasons)),
        }
        for name, some in sorted(sources.items(), key=lambda item: -len(item[1]))
    }
    counted = counts(next(iter(row.reasons)) for row in rows if row.reasons)
    found = counts(reason for row in rows for reason in row.reasons)
    levels = counts(str(row.level or _NO_LEVEL) for row in kept)
    repairs = counts(name for row in kept for name in row.meta.get("repairs", ()))
    funnel, left = [], len(rows)
    for step, reasons in steps.items():
        dropped = sum(counted[reason] for reason in reasons)
        in_, left = left, left - dropped
        funnel.append({"step": step, "in": in_, "dropped": dropped, "out": left})
    return {
        "rows": len(rows),
        "kept": len(kept),
        "with_level": len(kept) - levels[_NO_LEVEL],
        "levels": dict(sorted(levels.items())),
        "funnel": funnel,
        "reasons": {
            reason: {
                "step": step,
                "counted": counted[reason],
                "found": found[reason],
                "meaning": meaning,
            }
            for step, meanings in steps.items()
            for reason, meaning in meanings.items()
        },
        "by_source": by_source,
        "repairs": dict(sorted(repairs.items())),
    }


def _wrong_golds(read: int, wrong: int) -> dict[str, Any]:
    low, high = wilson_interval(wrong, read) if read else (0, 0)
    share = f"{wrong / read:.1%} [{low:.1%}, {high:.1%}]" if read else 0
    return {"golds read": read, "wrong golds": share}


def tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yields the tables of the report from the content of summary.json."""
    reasons = summary["reasons"]
    sources = []
    for name, entry in summary["by_source"].items():
        main = collections.Counter(entry["reasons"]).most_common(2)
        sources.append(
            {"source": name} | entry | {"reasons": ", ".join(r for r, _ in main)}
        )
    outcome = {name: summary[name] for name in ("rows", "kept", "with_level")}
    yield Table("Outcome", [outcome])
    more = len(sources) - _MOST_SOURCES
    note = f"{more:,} smaller sources are in `summary.json`." if more > 0 else ""
    yield Table("Sources", sources[:_MOST_SOURCES], note)
    yield Table("Funnel", summary["funnel"], chart=("step", "out"))
    yield Table(
        "Reasons",
        [{"reason": reason} | entry for reason, entry in reasons.items()],
        "`found` counts the rows with this reason, `counted` the rows with this reason"
        " as their first one.",
        chart=("reason", "counted"),
    )
    yield Table(
        "Levels",
        _named("level", summary["levels"]),
        f"On the scale `{summary['level_scale']}`; 1 is the easiest. Linked graders:"
        f" {', '.join(summary['linked_scales']) or 'none'}.",
        chart=("level", "problems"),
    )
    yield Table("Repairs on kept problems", _named("repair", summary["repairs"]))


def _named(column: str, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{column: name, "problems": n} for name, n in counts.items()]


def examples(rows: Iterable[Row]) -> str:
    """Returns example rows as HTML: dropped rows by reason, kept rows by source."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for row in rows:
        reason, details = next(iter(row.reasons.items()), ("", ""))
        if row.survives:
            reason = f"kept from {row.source}"
            solvers = (f"{one.by}: {one.correct}/{one.samples}" for one in row.evidence)
            details = ", ".join(solvers)
        if len(found[reason]) < EXAMPLES:
            title = pages.tag("h4", html.escape(row.id))
            text = pages.text(row.problem, _MOST_CHARACTERS)
            gold = pages.note(f"Gold: {' or '.join(row.answers)}")
            note = pages.note(details) if details else ""
            found[reason].append(pages.tag("article", note + title + text + gold))
    kinds = [
        pages.details(f"{kind} (the first {len(some)})", "".join(some))
        for kind, some in sorted(found.items())
    ]
    return pages.section("Rows to read", *kinds)
