"""What a run did, counted row by row, as Markdown and as one self-contained page."""

import collections
import html
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl.files import markdown_table
from tools.curation.row import Screened
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
Seen = Mapping[str, str]
"""`id`, `problem` and `answer` of a row that is to be read."""


class Report:
    """Counts and examples of one run, in memory that rows do not grow.

    Args:
      steps: the funnel: step -> reason -> what the reason means.
    """

    def __init__(self, steps: Mapping[str, Mapping[str, str]]):
        self.steps = steps
        self.reasons = [reason for step in steps.values() for reason in step]
        # source -> how many of its rows are kept, under "", or count under a reason
        self.sources: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        self.found: collections.Counter[str] = collections.Counter()
        self.levels: collections.Counter[str] = collections.Counter()
        self.lengths: collections.Counter[int | str] = collections.Counter()
        self.repairs: collections.Counter[str] = collections.Counter()
        # kind -> evidence, the row, and the problem beside it if there is one
        self.examples: dict[str, list[tuple[str, Seen, Seen | None]]] = (
            collections.defaultdict(list)
        )

    def add(self, row: Screened, level: int | None) -> None:
        """Counts a row, under the first that speaks against it where anything does.

        Args:
          row: its reasons in the order of the funnel.
          level: on the run's scale.
        """
        record, first = row.record, next(iter(row.reasons), "")
        self.sources[record["source"]][first] += 1
        self.found.update(row.reasons.keys())
        for reason, said in row.reasons.items():
            if reason in row.beside or reason == first:
                self._show(reason, said, row.seen, row.beside.get(reason))
        if not first:
            repairs = record["meta"].get("repairs", ())
            self.levels[str(level)] += 1
            self.lengths[length_bin(len(row.problem))] += 1
            self.repairs.update(repairs)
            self._show(f"kept of {record['source']}", "", row.seen)
            for name in repairs if "repaired" in row.beside else ():
                kind = f"kept and repaired: {name}"
                self._show(kind, "as it came", row.seen, row.beside["repaired"])

    def _show(self, kind: str, said: str, row: Seen, other: Seen | None = None) -> None:
        most = PAIRS if kind in self.reasons and other else EXAMPLES
        if len(self.examples[kind]) < most:
            self.examples[kind].append((said, row, other))

    @property
    def counted(self) -> collections.Counter[str]:
        """Rows by the first reason against them, those kept under ""."""
        return sum(self.sources.values(), collections.Counter())

    def funnel(self) -> list[dict[str, Any]]:
        """Rows in, dropped and out of each step."""
        counted, rows = self.counted, []
        left = counted.total()
        for step, reasons in self.steps.items():
            dropped = sum(counted[reason] for reason in reasons)
            rows.append(
                {"step": step, "in": left, "dropped": dropped, "out": left - dropped}
            )
            left -= dropped
        return rows

    def counts(self) -> dict[str, Any]:
        """The numbers of the report."""
        counted, sources = self.counted, sorted(self.sources.items())
        return {
            "rows": counted.total(),
            "kept": counted[""],
            "with_level": counted[""] - self.levels["None"],
            "levels": dict(sorted(self.levels.items())),
            "funnel": self.funnel(),
            "reasons": {
                reason: {"counted": counted[reason], "found": self.found[reason]}
                for reason in self.reasons
            },
            "kept_by_source": {name: some[""] for name, some in sources if some[""]},
            "dropped_by_source": {
                name: dropped
                for name, some in sources
                if (dropped := {k: n for k, n in sorted(some.items()) if k})
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
      facts: of the summary, `level_scale` and `other_scales`.
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
    counts, counted = report.counts(), report.counted
    yield (
        "Outcome",
        f"{counts['kept']:,} of {counts['rows']:,} rows kept, {counts['with_level']:,}"
        f" of them with a level on the scale `{facts['level_scale']}`.",
        (),
        (),
    )
    funnel = [tuple(step.values()) for step in counts["funnel"]]
    yield "Funnel", "", ("step", "rows in", "dropped", "rows out"), funnel
    yield (
        "Reasons",
        "A row is counted once, under the first reason that applies; `found` counts"
        " every row that the reason applies to.",
        ("step", "reason", "counted", "found", "meaning"),
        [
            (step, reason, counted[reason], report.found[reason], meaning)
            for step, reasons in report.steps.items()
            for reason, meaning in reasons.items()
        ],
    )
    used = ["", *(reason for reason in report.reasons if counted[reason])]
    yield (
        "Sources",
        "",
        ("source", "rows", "kept", *used[1:]),
        [
            (source, some.total(), *(some[reason] for reason in used))
            for source, some in sorted(report.sources.items())
        ],
    )
    yield (
        "Levels",
        "1 is the easiest. Rows without a level on the scale keep theirs in"
        " `meta.other_level`.",
        ("level", "problems"),
        list(counts["levels"].items()),
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
    repairs = list(counts["repairs"].items())
    yield "Repairs on kept problems", "", ("repair", "problems"), repairs


def _html(report: Report, sections: Sequence[Section]) -> str:
    counts, found = report.counts(), report.found
    left = [(step["step"], step["out"]) for step in counts["funnel"]]
    against = collections.Counter({r: report.counted[r] for r in report.reasons})
    charts = {
        "Funnel: rows left after each step": [("read", counts["rows"]), *left],
        "Dropped, by reason": against.most_common(14),
        "Levels of kept problems": list(counts["levels"].items()),
        "Characters of kept problems, up to": [
            (str(edge), report.lengths[edge]) for edge in LENGTHS
        ],
    }
    figures = {
        "rows read": counts["rows"],
        "problems kept": counts["kept"],
        "with a level": counts["with_level"],
        "exact duplicates": found["exact_duplicate"],
        "near duplicates": found["near_duplicate"],
        "evaluation matches": sum(found[r] for r in report.steps["decontamination"]),
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
        f"</summary>{''.join(_article(*each) for each in examples)}</details>"
        for kind in kinds
        for examples in [report.examples[kind]]
    )
    title = "Curation report"
    body = f'<h1>{title}</h1>{top}<div class="plots">{plots}</div>{tables}'
    return document(title, body)


def _article(said: str, row: Seen, other: Seen | None) -> str:
    columns = [
        f"<h4>{html.escape(one['id'])}</h4>"
        f'<div class="text">{html.escape(one["problem"][:_MOST_CHARACTERS])}</div>'
        f'<p class="soft">Gold: {html.escape(one["answer"])}</p>'
        for one in filter(None, (row, other))
    ]
    evidence = f"<p>{html.escape(said)}</p>" if said else ""
    return f"<article>{evidence}{beside(columns)}</article>"


def _edges(levels_from: Mapping[str, float]) -> str:
    return ", ".join(f"{k}: {edge:.3g}" for k, edge in sorted(levels_from.items()))
