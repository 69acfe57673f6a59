"""What a run did, counted row by row, as Markdown and as one self-contained page."""

import collections
import html
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl.files import markdown_table
from tools.curation.row import Row, seen
from tools.page import (
    bars,
    beside,
    cards,
    document,
    is_number,
    plain_code,
    shown,
    table,
)

EXAMPLES, PAIRS = 3, 20
"""Rows of a kind that can be read in the report, alone and beside another."""
_MOST_CHARACTERS = 4_000  # of a problem
LENGTHS = (50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2500)

Steps = Mapping[str, Mapping[str, str]]
"""The funnel: step -> reason -> what the reason means."""
Section = tuple[str, str, Sequence[str], Sequence[Sequence[Any]]]
"""Title, a note, the head of a table and its rows."""


def count(rows: Sequence[Row], steps: Steps) -> dict[str, Any]:
    """The numbers of a run.

    Args:
      rows: each with its reasons in the order of the funnel; it counts under the first.
      steps: the funnel.
    """
    counts = collections.Counter
    sources: dict[str, collections.Counter] = collections.defaultdict(counts)
    for row in rows:
        sources[row.source][next(iter(row.reasons), "")] += 1
    by_source = sorted(sources.items())
    counted = sum(sources.values(), counts())
    found = counts(reason for row in rows for reason in row.reasons)
    kept = [row for row in rows if row.survives]
    levels = counts(str(row.level) for row in kept)
    repairs = counts(name for row in kept for name in row.meta.get("repairs", ()))
    lengths = counts(length_bin(len(row.problem)) for row in kept)
    funnel, left = [], len(rows)
    for step, reasons in steps.items():
        dropped = sum(counted[reason] for reason in reasons)
        out = left - dropped
        funnel.append({"step": step, "in": left, "dropped": dropped, "out": out})
        left = out
    return {
        "rows": len(rows),
        "kept": len(kept),
        "with_level": len(kept) - levels["None"],
        "levels": dict(sorted(levels.items())),
        "lengths": {bin: lengths[bin] for bin in (*map(str, LENGTHS), "more")},
        "funnel": funnel,
        "reasons": {
            reason: {"counted": counted[reason], "found": found[reason]}
            for reasons in steps.values()
            for reason in reasons
        },
        "kept_by_source": {name: some[""] for name, some in by_source if some[""]},
        "dropped_by_source": {
            name: dropped
            for name, some in by_source
            if (dropped := {reason: n for reason, n in sorted(some.items()) if reason})
        },
        "repairs": dict(sorted(repairs.items())),
    }


def length_bin(length: int) -> str:
    """The upper edge of the histogram's bin."""
    return next((str(edge) for edge in LENGTHS if length <= edge), "more")


def write_pages(
    summary: Mapping[str, Any],
    steps: Steps,
    rows: Iterable[Row],
    markdown: pathlib.Path,
    page: pathlib.Path,
) -> None:
    """Writes the report as Markdown and as one self-contained page.

    Args:
      summary: what `count` gives, with `level_scale` and `other_scales`.
      steps: the funnel.
      rows: those of which some are to be read.
      markdown: where the Markdown goes.
      page: where the page goes.
    """
    sections = list(_sections(summary, steps))
    outcome = (
        f"{summary['kept']:,} of {summary['rows']:,} rows kept,"
        f" {summary['with_level']:,} of them with a level on the scale"
        f" `{summary['level_scale']}`."
    )
    lines = ["# Curation report", "", "## Outcome", "", outcome, ""]
    for title, note, head, cells in sections:
        lines += [f"## {title}", ""] + ([note, ""] if note else [])
        align = "".join("<>"[is_number(value)] for value in (cells or [head])[0])
        texts = [[shown(value) for value in line] for line in cells]
        lines += markdown_table(head, texts, align)
    markdown.write_text("\n".join(lines), encoding="utf-8")
    page.write_text(_html(summary, steps, sections, rows), encoding="utf-8")


def _sections(summary: Mapping[str, Any], steps: Steps) -> Iterable[Section]:
    reasons, kept = summary["reasons"], summary["kept_by_source"]
    funnel = [tuple(step.values()) for step in summary["funnel"]]
    yield "Funnel", "", ("step", "rows in", "dropped", "rows out"), funnel
    yield (
        "Reasons",
        "A row is counted once, under the first reason that applies; `found` counts"
        " every row that the reason applies to.",
        ("step", "reason", "counted", "found", "meaning"),
        [
            (step, reason, *reasons[reason].values(), meaning)
            for step, meanings in steps.items()
            for reason, meaning in meanings.items()
        ],
    )
    used = [reason for reason, n in reasons.items() if n["counted"]]
    dropped = summary["dropped_by_source"]
    by_source = [
        (name, kept.get(name, 0), [dropped.get(name, {}).get(r, 0) for r in used])
        for name in sorted(kept | dropped)
    ]
    yield (
        "Sources",
        "",
        ("source", "rows", "kept", *used),
        [(name, stay + sum(go), stay, *go) for name, stay, go in by_source],
    )
    yield (
        "Levels",
        "1 is the easiest. Rows without a level on the scale keep theirs in"
        " `meta.other_level`.",
        ("level", "problems"),
        list(summary["levels"].items()),
    )
    if summary["other_scales"]:
        yield (
            "Other scales",
            "Whose rows get a level on the scale by way of the rows that both graded,"
            " where these are at least `common_rows` and agree on which are harder. By"
            " level, where it begins on the other scale; a solve rate is negative.",
            ("scale", "rows in common", "rank correlation", "levels from"),
            [
                (
                    link["scale"],
                    link["common_rows"],
                    link["correlation"],
                    ", ".join(
                        f"{level}: {edge:.3g}"
                        for level, edge in link["levels_from"].items()
                    )
                    or "not taken",
                )
                for link in summary["other_scales"]
            ],
        )
    yield (
        "Lengths of kept problems",
        "In characters.",
        ("up to", "problems"),
        [(edge, n) for edge, n in summary["lengths"].items() if n],
    )
    repairs = list(summary["repairs"].items())
    yield "Repairs on kept problems", "", ("repair", "problems"), repairs


def _html(
    summary: Mapping[str, Any],
    steps: Steps,
    sections: Sequence[Section],
    rows: Iterable[Row],
) -> str:
    reasons = summary["reasons"]
    left = [(step["step"], step["out"]) for step in summary["funnel"]]
    against = collections.Counter({r: n["counted"] for r, n in reasons.items()})
    charts = {
        "Funnel: rows left after each step": [("read", summary["rows"]), *left],
        "Dropped, by reason": against.most_common(14),
        "Levels of kept problems": list(summary["levels"].items()),
        "Characters of kept problems, up to": list(summary["lengths"].items()),
    }
    figures = {
        "rows read": summary["rows"],
        "problems kept": summary["kept"],
        "with a level": summary["with_level"],
        "exact duplicates": reasons["exact_duplicate"]["found"],
        "near duplicates": reasons["near_duplicate"]["found"],
        "evaluation matches": sum(
            reasons[r]["found"] for r in steps["decontamination"]
        ),
    }
    plots = "".join(bars(title, values) for title, values in charts.items())
    top = cards([(f"{figure:,}", label) for label, figure in figures.items()])
    tables = "".join(
        f"<h2>{html.escape(title)}</h2>"
        + (f'<p class="soft">{plain_code(note)}</p>' if note else "")
        + table(head, cells)
        for title, note, head, cells in sections
    )
    articles = _articles(rows)
    kinds = [reason for reason in reasons if reason in articles]
    kinds += sorted(articles.keys() - set(kinds))
    tables += "<h2>Rows to read</h2>" + "".join(
        f"<details><summary>{html.escape(kind)} (the first {len(articles[kind])})"
        f"</summary>{''.join(articles[kind])}</details>"
        for kind in kinds
    )
    title = "Curation report"
    body = f'<h1>{title}</h1>{top}<div class="plots">{plots}</div>{tables}'
    return document(title, body)


def _articles(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Kind -> its first rows with the evidence, and the problem beside it if any."""
    found: dict[str, list[str]] = collections.defaultdict(list)

    def show(kind: str, most: int, said: str, *problems: Mapping[str, str]) -> None:
        if len(found[kind]) < most:
            found[kind].append(_article(said, problems))

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


def _article(said: str, problems: Iterable[Mapping[str, str]]) -> str:
    columns = [
        f"<h4>{html.escape(one['id'])}</h4>"
        f'<div class="text">{html.escape(one["problem"][:_MOST_CHARACTERS])}</div>'
        f'<p class="soft">Gold: {html.escape(one["answer"])}</p>'
        for one in problems
    ]
    evidence = f"<p>{html.escape(said)}</p>" if said else ""
    return f"<article>{evidence}{beside(columns)}</article>"
