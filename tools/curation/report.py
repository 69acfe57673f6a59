"""What a run did, counted row by row, as Markdown and as one self-contained page."""

import collections
import dataclasses
import html
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl.files import markdown_table
from tools.curation.row import Seen, seen
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
LENGTHS = (50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2500, "more")

Section = tuple[str, str, Sequence[str], Sequence[Sequence[Any]]]
"""Title, a note, the head of a table and its rows; no head, no table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A row to be read.

    Attributes:
      row: as it was kept or dropped.
      said: the evidence, or "".
      other: the problem that it was found beside, or the row before repairs.
    """

    row: Seen
    said: str = ""
    other: Seen | None = None


class Report:
    """Counts and examples of one run, in memory that rows do not grow.

    Args:
      steps: the funnel: step -> reason -> what the reason means.
    """

    def __init__(self, steps: Mapping[str, Mapping[str, str]]):
        self.steps = steps
        self.reasons = [reason for step in steps.values() for reason in step]
        self.kept: collections.Counter[str] = collections.Counter()
        self.levels: collections.Counter[int | None] = collections.Counter()
        self.lengths: collections.Counter[int | str] = collections.Counter()
        self.repairs: collections.Counter[str] = collections.Counter()
        self.counted: collections.Counter[str] = collections.Counter()
        self.found: collections.Counter[str] = collections.Counter()
        self.by_source: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        self.examples: dict[str, list[Example]] = collections.defaultdict(list)

    def _show(self, kind: str, example: Example, most: int) -> None:
        if len(self.examples[kind]) < most:
            self.examples[kind].append(example)

    def add_kept(self, record: Mapping[str, Any], beside: Mapping[str, Seen]) -> None:
        """Counts a row that stays; `beside` as in `Screened`."""
        self.kept[record["source"]] += 1
        self.levels[record["level"]] += 1
        self.lengths[length_bin(len(record["problem"]))] += 1
        repairs = record["meta"].get("repairs", ())
        self.repairs.update(repairs)
        self._show(f"kept of {record['source']}", Example(seen(record)), EXAMPLES)
        for name in repairs if "repaired" in beside else ():
            mended = Example(seen(record), "as it came", beside["repaired"])
            self._show(f"kept and repaired: {name}", mended, EXAMPLES)

    def add_dropped(
        self,
        record: Mapping[str, Any],
        evidence: Mapping[str, str],
        beside: Mapping[str, Seen],
    ) -> dict[str, Any]:
        """Counts a row that goes, under the first of its reasons.

        Returns:
          What is written of it: `reason` lists all that apply, first the one counted.
        """
        ordered = {r: evidence[r] for r in self.reasons if r in evidence}
        row = {
            "id": record["id"],
            "source": record["source"],
            "reason": ", ".join(ordered),
            "evidence": ordered,
            "problem": record["problem"],
            "answer": record["answer"],
        }
        first = next(iter(ordered))
        self.counted[first] += 1
        self.found.update(ordered.keys())
        self.by_source[record["source"]][first] += 1
        for reason, said in ordered.items():
            if reason in beside:
                pair = Example(seen(record), said, beside[reason])
                self._show(reason, pair, PAIRS)
            elif reason == first:
                self._show(reason, Example(seen(record), said), EXAMPLES)
        return row

    @property
    def rows(self) -> int:
        """All rows read."""
        return self.kept.total() + self.counted.total()

    @property
    def with_level(self) -> int:
        """Kept rows that have a level on the run's scale."""
        return self.levels.total() - self.levels[None]

    def level_counts(self) -> list[tuple[int | None, int]]:
        """Kept rows by level, from easy to hard, those without one last."""
        order = sorted(self.levels, key=lambda level: (level is None, level or 0))
        return [(level, self.levels[level]) for level in order if self.levels[level]]

    def funnel(self) -> list[dict[str, Any]]:
        """Rows in, dropped and out of each step."""
        left, rows = self.rows, []
        for step, reasons in self.steps.items():
            dropped = sum(self.counted[reason] for reason in reasons)
            rows.append(
                {"step": step, "in": left, "dropped": dropped, "out": left - dropped}
            )
            left -= dropped
        return rows

    def counts(self) -> dict[str, Any]:
        """The numbers of the report."""
        return {
            "rows": self.rows,
            "kept": self.kept.total(),
            "with_level": self.with_level,
            "levels": {str(level): count for level, count in self.level_counts()},
            "funnel": self.funnel(),
            "reasons": {
                reason: {"counted": self.counted[reason], "found": self.found[reason]}
                for reason in self.reasons
            },
            "kept_by_source": dict(sorted(self.kept.items())),
            "dropped_by_source": {
                source: dict(sorted(counts.items()))
                for source, counts in sorted(self.by_source.items())
            },
            "repairs": dict(sorted(self.repairs.items())),
        }


def length_bin(length: int) -> int | str:
    """The upper edge of the histogram's bin."""
    return next((e for e in LENGTHS if isinstance(e, int) and length <= e), "more")


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
    for title, note, head, rows in sections:
        lines += [f"## {title}", ""] + ([note, ""] if note else [])
        if head:
            align = "".join("<>"[is_number(v)] for v in (rows[0] if rows else head))
            cells = [[shown(value) for value in row] for row in rows]
            lines += markdown_table(head, cells, align)
    markdown.write_text("\n".join(lines), encoding="utf-8")
    page.write_text(_html(report, sections), encoding="utf-8")


def _sections(report: Report, facts: Mapping[str, Any]) -> Iterable[Section]:
    yield (
        "Outcome",
        f"{report.kept.total():,} of {report.rows:,} rows kept, {report.with_level:,}"
        f" of them with a level on the scale `{facts['level_scale']}`.",
        (),
        (),
    )
    funnel = [tuple(step.values()) for step in report.funnel()]
    yield "Funnel", "", ("step", "rows in", "dropped", "rows out"), funnel
    yield (
        "Reasons",
        "A row is counted once, under the first reason that applies; `found` counts"
        " every row that the reason applies to.",
        ("step", "reason", "counted", "found", "meaning"),
        [
            (step, reason, report.counted[reason], report.found[reason], meaning)
            for step, reasons in report.steps.items()
            for reason, meaning in reasons.items()
        ],
    )
    used = [reason for reason in report.reasons if report.counted[reason]]
    yield (
        "Sources",
        "",
        ("source", "rows", "kept", *used),
        [
            (
                source,
                report.kept[source] + report.by_source[source].total(),
                report.kept[source],
                *(report.by_source[source][reason] for reason in used),
            )
            for source in sorted(set(report.kept) | set(report.by_source))
        ],
    )
    yield (
        "Levels",
        "1 is the easiest. Rows without a level on the scale keep theirs in"
        " `meta.other_level`.",
        ("level", "problems"),
        [(level or "none", count) for level, count in report.level_counts()],
    )
    if facts["other_scales"]:
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
                    _edges(link["levels_from"]) if link["taken"] else "not taken",
                )
                for link in facts["other_scales"]
            ],
        )
    yield (
        "Lengths of kept problems",
        "In characters.",
        ("up to", "problems"),
        [(edge, report.lengths[edge]) for edge in LENGTHS if report.lengths[edge]],
    )
    repairs = sorted(report.repairs.items())
    yield "Repairs on kept problems", "", ("repair", "problems"), repairs
    yield (
        "Inputs",
        "",
        ("source", "file", "rows", "bytes", "sha256"),
        [
            (s["name"], s["file"], s["rows"], s["size"], s["sha256"])
            for s in facts["sources"]
        ],
    )
    yield (
        "Identity",
        "The same inputs, options and versions give the same bytes.",
        ("what", "value"),
        [
            ("fingerprint", facts["fingerprint"]),
            ("verifier", facts["verifier"]),
            *facts["sha256"].items(),
            *((k, json.dumps(v, sort_keys=True)) for k, v in facts["options"].items()),
        ],
    )


def _html(report: Report, sections: Sequence[Section]) -> str:
    read = [("read", report.rows)]
    levels = [(str(level or "none"), n) for level, n in report.level_counts()]
    charts = {
        "Funnel: rows left after each step": read
        + [(step["step"], step["out"]) for step in report.funnel()],
        "Dropped, by reason": report.counted.most_common(14),
        "Levels of kept problems": levels,
        "Characters of kept problems, up to": [
            (str(edge), report.lengths[edge]) for edge in LENGTHS
        ],
    }
    matches = sum(report.found[reason] for reason in report.steps["decontamination"])
    figures = {
        "rows read": report.rows,
        "problems kept": report.kept.total(),
        "with a level": report.with_level,
        "exact duplicates": report.found["exact_duplicate"],
        "near duplicates": report.found["near_duplicate"],
        "evaluation matches": matches,
    }
    plots = "".join(bars(title, values) for title, values in charts.items())
    top = cards([(f"{figure:,}", label) for label, figure in figures.items()])
    tables = "".join(
        f"<h2>{html.escape(title)}</h2>"
        + (f'<p class="soft">{plain_code(note)}</p>' if note else "")
        + table(head, rows)
        for title, note, head, rows in sections[1:]
    )
    kinds = [reason for reason in report.reasons if reason in report.examples]
    kinds += sorted(report.examples.keys() - set(kinds))
    tables += "<h2>Rows to read</h2>" + "".join(
        f"<details><summary>{html.escape(kind)} (the first {len(examples)})"
        f"</summary>{''.join(map(_article, examples))}</details>"
        for kind in kinds
        for examples in [report.examples[kind]]
    )
    title = "Curation report"
    body = f'<h1>{title}</h1>{top}<div class="plots">{plots}</div>{tables}'
    return document(title, body)


def _article(example: Example) -> str:
    columns = [
        f"<h4>{html.escape(one.id)}</h4>"
        f'<div class="text">{html.escape(one.problem[:_MOST_CHARACTERS])}</div>'
        f'<p class="soft">Gold: {html.escape(one.answer)}</p>'
        for one in filter(None, (example.row, example.other))
    ]
    said = f"<p>{html.escape(example.said)}</p>" if example.said else ""
    return f"<article>{said}{beside(columns)}</article>"


def _edges(levels_from: Mapping[str, float]) -> str:
    return ", ".join(f"{k}: {edge:.3g}" for k, edge in sorted(levels_from.items()))
