"""What a run did, counted row by row, as Markdown and as one self-contained page."""

import collections
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rl.files import markdown_table
from tools import page as pages
from tools.curation.row import Row, seen

EXAMPLES, PAIRS = 3, 20  # rows of a kind to read, alone and beside another
_MOST_CHARACTERS = 4_000  # of a problem
_MOST_SOURCES = 30
_NO_LEVEL = "no level"
_TITLE = "Curation report"

Steps = Mapping[str, Mapping[str, str]]
"""The funnel: step -> reason -> what the reason means."""


class Section(NamedTuple):
    """A table of the report; a page also draws its `chart`, of labels and figures."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    chart: tuple[str, str] | None = None
    note: str = ""


def count(rows: Sequence[Row], steps: Steps) -> dict[str, Any]:
    """The numbers of a run; a row counts under the first of its reasons."""
    counts = collections.Counter
    kept = [row for row in rows if row.survives]
    by_source = collections.defaultdict(counts)
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


def sections(summary: Mapping[str, Any]) -> Iterator[Section]:
    """The report, the outcome first, of what summary.json says."""
    reasons, sources = summary["reasons"], summary["by_source"]
    outcome = {name: summary[name] for name in ("rows", "kept", "with_level")} | {
        reason: told["found"]
        for reason, told in reasons.items()
        if told["step"] in ("decontamination", "duplicates")
    }
    yield Section("Outcome", _named("", outcome))
    yield Section("Funnel", summary["funnel"], ("step", "out"))
    yield Section(
        "Reasons",
        [{"reason": reason} | told for reason, told in reasons.items()],
        ("reason", "counted"),
        "A row counts under its first reason; `found` are all that one applies to.",
    )
    used = ("kept", *(reason for reason, n in reasons.items() if n["counted"]))
    by_size = sorted(sources, key=lambda name: -sum(sources[name].values()))
    more = len(sources) - _MOST_SOURCES
    yield Section(
        "Sources",
        [
            {"source": name, "rows": sum(sources[name].values())}
            | {column: sources[name].get(column, 0) for column in used}
            for name in by_size[:_MOST_SOURCES]
        ],
        note=f"And {more:,} more, smaller; see `summary.json`." if more > 0 else "",
    )
    yield Section(
        "Levels",
        _named("level", summary["levels"]),
        ("level", "problems"),
        f"On the scale `{summary['level_scale']}`, 1 the easiest; by way of rows graded"
        f" on both also from: {', '.join(summary['linked_scales']) or 'none'}.",
    )
    yield Section("Repairs on kept problems", _named("repair", summary["repairs"]))


def _named(column: str, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{column: name, "problems": n} for name, n in counts.items()]


def markdown(report: Iterable[Section]) -> str:
    """The report as Markdown."""
    lines = [f"# {_TITLE}", ""]
    for title, rows, _, note in report:
        if rows:
            align = "".join("<>"[pages.is_number(value)] for value in rows[0].values())
            texts = [[*map(pages.shown, row.values())] for row in rows]
            lines += [f"## {title}", "", *([note, ""] if note else [])]
            lines += markdown_table([*rows[0]], texts, align)
    return "\n".join(lines)


def page(report: Iterable[Section], rows: Iterable[Row]) -> str:
    """Returns the report as a page: outcome, charts, tables, and rows to read."""
    outcome, *others = report
    named = [(pages.shown(n), name) for name, n in map(dict.values, outcome.rows)]
    charts = [
        pages.bars(title, [(row[chart[0]], row[chart[1]]) for row in told])
        for title, told, chart, _ in others
        if chart
    ]
    tables = [
        pages.section(
            title,
            pages.note(note) if note else "",
            pages.table([*told[0]], [[*row.values()] for row in told]),
        )
        for title, told, _, note in others
        if told
    ]
    articles = [
        pages.details(f"{kind} (the first {len(some)})", "".join(some))
        for kind, some in sorted(_articles(rows).items())
    ]
    return pages.document(
        _TITLE,
        pages.cards(named)
        + pages.plots(charts)
        + "".join(tables)
        + pages.section("Rows to read", *articles),
    )


def _articles(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Returns the first rows of each kind, with evidence and the other problem."""
    found: dict[str, list[str]] = collections.defaultdict(list)

    def show(kind: str, most: int, said: str, *problems: Mapping[str, str]) -> None:
        if len(found[kind]) < most:
            evidence = pages.note(said, "") if said else ""
            columns = [
                f"<h4>{html.escape(one['id'])}</h4>"
                f'<div class="text">{html.escape(one["problem"][:_MOST_CHARACTERS])}'
                f'</div><p class="soft">Gold: {html.escape(one["answer"])}</p>'
                for one in problems
            ]
            found[kind].append(f"<article>{evidence}{pages.columns(columns)}</article>")

    for row in rows:
        for n, (reason, said) in enumerate(row.reasons.items()):
            if reason in row.beside:
                show(reason, PAIRS, said, seen(row), row.beside[reason])
            elif n == 0:
                show(reason, EXAMPLES, said, seen(row))
        if row.survives:
            show(f"kept of {row.source}", EXAMPLES, "", seen(row))
            for name in row.meta["repairs"] if "repaired" in row.beside else ():
                pair = seen(row), row.beside["repaired"]
                show(f"kept and repaired: {name}", EXAMPLES, "as it came", *pair)
    return found
