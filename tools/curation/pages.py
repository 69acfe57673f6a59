"""The report as Markdown and as one self-contained HTML page."""

import html
import json
import pathlib
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl.files import markdown_table
from tools.curation.report import CONTAMINATED, LENGTHS, Report, level_order

_PAGE = pathlib.Path(__file__).with_name("report.html")


def write_pages(
    report: Report,
    facts: Mapping[str, Any],
    markdown: pathlib.Path,
    page: pathlib.Path,
) -> None:
    """Writes the report as Markdown and as one self-contained page.

    Args:
      report: what was counted.
      facts: the run's identity: sources, options, hashes.
      markdown: where the Markdown goes.
      page: where the page goes.
    """
    sections = list(_sections(report, facts))
    lines = ["# Curation report", ""]
    for title, note, table in sections:
        lines += [f"## {title}", ""] + ([note, ""] if note else [])
        if table:
            head, rows = table
            align = "".join("<>"[_is_number(v)] for v in (rows[0] if rows else head))
            cells = [[_format(value) for value in row] for row in rows]
            lines += markdown_table(head, cells, align)
    markdown.write_text("\n".join(lines), encoding="utf-8")
    page.write_text(_html(report, sections), encoding="utf-8")


Table = tuple[Sequence[str], Sequence[Sequence[Any]]]


def _sections(
    report: Report, facts: Mapping[str, Any]
) -> Iterable[tuple[str, str, Table | None]]:
    kept = sum(report.kept.values())
    leveled = sum(n for level, n in report.levels.items() if level)
    yield (
        "Outcome",
        f"{kept:,} of {report.rows:,} rows kept, {leveled:,} of them with a level on"
        f" the scale `{facts['level_scale']}`.",
        None,
    )
    yield (
        "Funnel",
        "",
        (
            ("step", "rows in", "dropped", "rows out"),
            [tuple(step.values()) for step in report.funnel()],
        ),
    )
    yield (
        "Reasons",
        "A row is counted once, under the first reason that applies; `found` counts"
        " every row that the reason applies to.",
        (
            ("step", "reason", "counted", "found", "meaning"),
            [
                (step, reason, report.counted[reason], report.found[reason], meaning)
                for step, reasons in report.steps.table.items()
                for reason, meaning in reasons.items()
            ],
        ),
    )
    sources = sorted(set(report.kept) | set(report.by_source))
    used = [r for r in report.steps.reasons if report.counted[r]]
    yield (
        "Sources",
        "",
        (
            ("source", "rows", "kept", *used),
            [
                (
                    source,
                    report.kept[source] + sum(report.by_source[source].values()),
                    report.kept[source],
                    *(report.by_source[source][reason] for reason in used),
                )
                for source in sources
            ],
        ),
    )
    yield (
        "Levels",
        "1 is the easiest. Rows without a level on the scale keep theirs in"
        " `meta.other_level`.",
        (
            ("level", "problems"),
            [(k or "none", report.levels[k]) for k in level_order(report.levels)],
        ),
    )
    yield (
        "Lengths of kept problems",
        "In characters.",
        (
            ("up to", "problems"),
            [
                (edge, report.lengths[edge])
                for edge in (*LENGTHS, "more")
                if report.lengths[edge]
            ],
        ),
    )
    yield (
        "Repairs on kept problems",
        "",
        (("repair", "problems"), sorted(report.repairs.items())),
    )
    yield (
        "Contamination",
        f"Rows that match one of {facts['evaluation_problems']:,} evaluation problems;"
        f" the first {CONTAMINATED}.",
        (("row", "match", "evaluation problem"), report.contaminated),
    )
    yield (
        "Examples of dropped rows",
        "",
        (
            ("reason", "row", "evidence", "problem"),
            [
                (reason, name, _short(evidence, 80), _short(problem, 160))
                for reason in report.steps.reasons
                for name, evidence, problem in report.examples[reason]
            ],
        ),
    )
    yield (
        "Inputs",
        "",
        (
            ("source", "file", "rows", "bytes", "sha256"),
            [
                (s["name"], s["file"], s["rows"], s["size"], s["sha256"])
                for s in facts["sources"]
            ],
        ),
    )
    yield (
        "Identity",
        "The same inputs, options and versions give the same bytes.",
        (
            ("what", "value"),
            [
                ("fingerprint", facts["fingerprint"]),
                ("verifier", facts["verifier"]),
                *((name, digest) for name, digest in facts["sha256"].items()),
                *(
                    (name, json.dumps(value, sort_keys=True))
                    for name, value in facts["options"].items()
                ),
            ],
        ),
    )


def _html(report: Report, sections: Sequence[tuple[str, str, Table | None]]) -> str:
    plots = (
        _bars(
            "Funnel: rows left after each step",
            [("read", report.rows)] + [(s["step"], s["out"]) for s in report.funnel()],
        )
        + _bars(
            "Dropped, by reason",
            [(r, n) for r, n in report.counted.most_common(14) if n],
        )
        + _bars(
            "Levels of kept problems",
            [(str(k or "none"), report.levels[k]) for k in level_order(report.levels)],
        )
        + _bars(
            "Characters of kept problems, up to",
            [(str(e), report.lengths[e]) for e in (*LENGTHS, "more")],
        )
    )
    kept = sum(report.kept.values())
    figures = [
        (f"{report.rows:,}", "rows read"),
        (f"{kept:,}", "problems kept"),
        (f"{sum(n for lv, n in report.levels.items() if lv):,}", "with a level"),
        (f"{report.found['exact_duplicate']:,}", "exact duplicates"),
        (f"{report.found['near_duplicate']:,}", "near duplicates"),
        (
            f"{sum(report.found[r] for r in report.steps.table['decontamination']):,}",
            "evaluation matches",
        ),
    ]
    cards = "".join(
        f"<div class=card><b>{number}</b><span>{label}</span></div>"
        for number, label in figures
    )
    tables = "".join(
        f"<h2>{html.escape(title)}</h2>"
        + (f"<p class=soft>{_code(note)}</p>" if note else "")
        + (_html_table(*table) if table else "")
        for title, note, table in sections[1:]
    )
    page = string.Template(_PAGE.read_text(encoding="utf-8"))
    return page.substitute(cards=cards, plots=plots, tables=tables)


def _html_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    first = rows[0] if rows else head
    kinds = [" class=number" if _is_number(value) else "" for value in first]
    heads = "".join(
        f"<th{kind}>{html.escape(name)}</th>"
        for name, kind in zip(head, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{html.escape(_format(value))}</td>"
            for value, kind in zip(row, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<div class=wide><table><tr>{heads}</tr>{body}</table></div>"


def _bars(title: str, values: Sequence[tuple[str, int]]) -> str:
    """A horizontal bar chart as inline SVG."""
    step, left, right = 22, 150, 70
    width = 520
    top = max((count for _, count in values), default=1) or 1
    parts = []
    for i, (label, count) in enumerate(values):
        y = i * step
        bar = max(1.0, (width - left - right) * count / top)
        parts.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">'
            f"{html.escape(label)}</text>"
            f'<rect x="{left}" y="{y + 4}" width="{bar:.1f}" height="15" rx="2"/>'
            f'<text class="soft" x="{left + bar + 6:.1f}" y="{y + 15}">{count:,}</text>'
        )
    height = step * len(values) + 4
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{html.escape(title)}">{"".join(parts)}</svg></figure>'
    )


def _code(text: str) -> str:
    pieces = html.escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _short(text: str, size: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 1] + "…"
