"""Counts the rows of a curation run, and makes the sections of its report."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rl.statistics import wilson_interval
from tools.curation.evidence import Readings
from tools.curation.row import Row
from tools.page import Entry, Section, cut, with_interval

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
    first = [(row.source, next(iter(row.reasons))) for row in rows if row.reasons]
    counted = counts(reason for _, reason in first)
    found = counts(reason for row in rows for reason in row.reasons)
    evident = counts(row.source for row in rows if row.strength >= least)
    kept_of = counts(row.source for row in kept)
    by_source = {
        name: {
            "rows": count,
            "with evidence": evident[name],
            "kept": kept_of[name],
            **_wrong_golds(*readings.get(name, (0, 0))),
            "reasons": dict(counts(reason for of, reason in first if of == name)),
        }
        for name, count in counts(row.source for row in rows).most_common()
    }
    levels = counts(str(row.level or _NO_LEVEL) for row in kept)
    repairs = counts(name for row in kept for name in row.meta.get("repairs", ()))
    funnel, left, entries = [], len(rows), {}
    for step, meanings in steps.items():
        dropped = sum(counted[reason] for reason in meanings)
        in_, left = left, left - dropped
        funnel.append({"step": step, "in": in_, "dropped": dropped, "out": left})
        for reason, meaning in meanings.items():
            numbers = {"counted": counted[reason], "found": found[reason]}
            entries[reason] = {"step": step, **numbers, "meaning": meaning}
    return {
        "rows": len(rows),
        "kept": len(kept),
        "with_level": len(kept) - levels[_NO_LEVEL],
        "levels": dict(sorted(levels.items())),
        "funnel": funnel,
        "reasons": entries,
        "by_source": by_source,
        "repairs": dict(sorted(repairs.items())),
    }


def _wrong_golds(read: int, wrong: int) -> dict[str, Any]:
    if not read:
        return {"golds read": 0, "wrong golds": 0}
    share = with_interval(wrong / read, wilson_interval(wrong, read), ".1%")
    return {"golds read": read, "wrong golds": share}


def sections(summary: Mapping[str, Any]) -> Iterator[Section]:
    """Yields the tables of the report from the content of summary.json."""
    sources = []
    for name, entry in summary["by_source"].items():
        main = collections.Counter(entry["reasons"]).most_common(2)
        sources.append(
            {"source": name} | entry | {"reasons": ", ".join(r for r, _ in main)}
        )
    yield Section("Outcome", [{k: summary[k] for k in ("rows", "kept", "with_level")}])
    more = len(sources) - _MOST_SOURCES
    note = f"{more:,} smaller sources are in `summary.json`." if more > 0 else ""
    yield Section("Sources", sources[:_MOST_SOURCES], note)
    yield Section("Funnel", summary["funnel"])
    yield Section(
        "Reasons",
        [{"reason": reason} | entry for reason, entry in summary["reasons"].items()],
        "`found` counts the rows with this reason, `counted` the rows with this reason"
        " as their first one.",
    )
    yield Section(
        "Levels",
        [{"level": level, "problems": n} for level, n in summary["levels"].items()],
        f"On the scale `{summary['level_scale']}`; 1 is the easiest. Linked graders:"
        f" {', '.join(summary['linked_scales']) or 'none'}.",
    )
    repairs = [{"repair": r, "problems": n} for r, n in summary["repairs"].items()]
    yield Section("Repairs on kept problems", repairs)


def examples(rows: Iterable[Row]) -> Section:
    """Returns example rows: dropped rows by reason, kept rows by source."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for row in rows:
        kind, details = next(iter(row.reasons.items()), ("", ""))
        if row.survives:
            kind, details = f"kept from {row.source}", row.solvers
        if len(found[kind]) < EXAMPLES:
            problem, gold = cut(row.problem, _MOST_CHARACTERS), " or ".join(row.answers)
            found[kind].append(f"{row.id}: {details}\n\n{problem}\n\nGold: {gold}")
    entries = [
        Entry(f"{kind} (the first {len(texts)})", texts)
        for kind, texts in sorted(found.items())
    ]
    return Section("Rows to read", entries=entries)
