"""Renders reports, which are lists of tables, as Markdown and as HTML pages.

report = [Table("Levels", [{"level": 1, "problems": 12}], chart=("level", "problems"))]
text = markdown("Curation", report)
html = page("Curation", report)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rl.files import markdown_table
from tools import page as pages


class Table(NamedTuple):
    """Holds rows with the same keys, which are the column names."""

    title: str  # heading of the table, or ""
    rows: Sequence[Mapping[str, Any]]  # number columns are right-aligned
    note: str = ""  # text below the heading
    # label column and value column of a bar chart in HTML pages
    chart: tuple[str, str] | None = None


def markdown(title: str, report: Iterable[Table], *remarks: str) -> str:
    """Renders a report as Markdown, with `remarks` as a list at the end."""
    lines = [f"# {title}", ""]
    for table in report:
        lines += [f"## {table.title}", ""] if table.title and table.rows else []
        lines += [table.note, ""] if table.note else []
        if table.rows:
            first = table.rows[0].values()
            align = "".join("<>"[pages.is_number(value)] for value in first)
            cells = [[*map(pages.shown, row.values())] for row in table.rows]
            lines += markdown_table([*table.rows[0]], cells, align)
    lines += [f"- {remark}" for remark in remarks]
    return "\n".join([*lines, ""] if remarks else lines)


def page(title: str, report: Iterable[Table], *bodies: str) -> str:
    """Renders a report as an HTML page: charts, tables, then the HTML `bodies`."""
    tables = [table for table in report if table.rows or table.note]
    charts = [
        pages.bars(table.title, [(str(row[x]), row[y]) for row in table.rows])
        for table in tables
        for x, y in filter(None, [table.chart])
    ]
    parts = [
        pages.section(
            table.title,
            pages.note(table.note) if table.note else "",
            pages.table([*table.rows[0]], [[*row.values()] for row in table.rows])
            if table.rows
            else "",
        )
        for table in tables
    ]
    return pages.document(title, pages.plots(charts) + "".join([*parts, *bodies]))
