"""The report as Markdown and as one self-contained HTML page."""

import html
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl.files import markdown_table
from tools.curation.report import CONTAMINATED, LENGTHS, Report, level_order
from tools.page import bars, cards, document, is_number, plain_code, shown, table


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
    for title, note, content in sections:
        lines += [f"## {title}", ""] + ([note, ""] if note else [])
        if content:
            head, rows = content
            align = "".join("<>"[is_number(v)] for v in (rows[0] if rows else head))
            cells = [[shown(value) for value in row] for row in rows]
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
        bars(
            "Funnel: rows left after each step",
            [("read", report.rows)] + [(s["step"], s["out"]) for s in report.funnel()],
        )
        + bars(
            "Dropped, by reason",
            [(r, n) for r, n in report.counted.most_common(14) if n],
        )
        + bars(
            "Levels of kept problems",
            [(str(k or "none"), report.levels[k]) for k in level_order(report.levels)],
        )
        + bars(
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
    tables = "".join(
        f"<h2>{html.escape(title)}</h2>"
        + (f'<p class="soft">{plain_code(note)}</p>' if note else "")
        + (table(*content) if content else "")
        for title, note, content in sections[1:]
    )
    title = "Curation report"
    top = f'<h1>{title}</h1>{cards(figures)}<div class="plots">{plots}</div>'
    return document(title, top + tables)


def _short(text: str, size: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= size else text[: size - 1] + "…"
