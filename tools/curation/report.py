"""Counts the rows of a curation run, and renders the counts as tables and HTML."""

import collections
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rl.statistics import wilson_interval
from tools import page as pages
from tools.curation.evidence import Readings
from tools.curation.row import Row, excerpt
from tools.tables import Table

EXAMPLES, PAIRS = 3, 20  # example rows per kind: single rows, and pairs of rows
TITLE = "Curation report"
_MOST_CHARACTERS = 4_000  # of each example problem
_MOST_SOURCES = 30
_NO_LEVEL = "no level"
Steps = Mapping[str, Mapping[str, str]]  # meaning of each reason, by step and reason


def count(rows: Sequence[Row], steps: Steps) -> dict[str, Any]:
    """Returns the counts of summary.json: by step, reason, source, level and repair."""
    counts = collections.Counter
    kept = [row for row in rows if row.survives]
    by_source: dict[str, collections.Counter[str]] = collections.defaultdict(counts)
    for row in rows:
        by_source[row.source][next(iter(row.reasons), "kept")] += 1
    counted = sum(by_source.values(), counts())
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
        "by_source": {name: dict(by_source[name]) for name in sorted(by_source)},
        "repairs": dict(sorted(repairs.items())),
    }


def evidence_by_source(
    rows: Sequence[Row], least: float, readings: Readings
) -> list[dict[str, Any]]:
    """Returns a table row per source: counts, and the share of wrong golds.

    The share is that of the golds in `readings`, with its 95% interval. The column
    "with evidence" counts rows whose strength is at least `least`.
    """
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[row.source].append(row)
    table = []
    for source, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        read, wrong = readings.get(source, (0, 0))
        low, high = wilson_interval(wrong, read) if read else (0, 0)
        reasons = collections.Counter(next(iter(r.reasons)) for r in group if r.reasons)
        table.append(
            {
                "source": source,
                "rows": len(group),
                "with evidence": sum(row.strength >= least for row in group),
                "kept": sum(row.survives for row in group),
                "golds read": read,
                "wrong golds": read and f"{wrong / read:.1%} [{low:.1%}, {high:.1%}]",
                "main drop reasons": ", ".join(r for r, _ in reasons.most_common(2)),
            }
        )
    return table


def tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yields the tables of the report from the content of summary.json."""
    reasons, sources = summary["reasons"], summary["evidence_by_source"]
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

    def show(kind: str, most: int, details: str, *problems: Mapping[str, str]) -> None:
        if len(found[kind]) < most:
            columns = [
                f"<h4>{html.escape(one['id'])}</h4>"
                f'<div class="text">{html.escape(one["problem"][:_MOST_CHARACTERS])}'
                f'</div><p class="soft">Gold: {html.escape(one["answer"])}</p>'
                for one in problems
            ]
            note = pages.note(details, "") if details else ""
            found[kind].append(f"<article>{note}{pages.columns(columns)}</article>")

    for row in rows:
        for n, (reason, details) in enumerate(row.reasons.items()):
            if reason in row.matches:
                show(reason, PAIRS, details, excerpt(row), row.matches[reason])
            elif n == 0:
                show(reason, EXAMPLES, details, excerpt(row))
        if row.survives:
            solvers = (f"{one.by}: {one.correct}/{one.samples}" for one in row.evidence)
            show(f"kept from {row.source}", EXAMPLES, ", ".join(solvers), excerpt(row))
    kinds = [
        pages.details(f"{kind} (the first {len(some)})", "".join(some))
        for kind, some in sorted(found.items())
    ]
    return pages.section("Rows to read", *kinds)
