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
    """Holds rows with the same keys, which are the columns.

    Attributes:
      title: heading; empty for a table without one.
      rows: values by column; numbers are right-aligned.
      note: sentences below the heading.
      chart: the columns of labels and of values that a page also shows as bars.
    """

    title: str
    rows: Sequence[Mapping[str, Any]]
    note: str = ""
    chart: tuple[str, str] | None = None


def markdown(title: str, report: Iterable[Table], *remarks: str) -> str:
    """Returns a report as Markdown, with remarks as a list at its end."""
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
    """Returns a report as a page: charts, tables, then `bodies`, which are HTML."""
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
            html_table(table),
        )
        for table in tables
    ]
    return pages.document(title, pages.plots(charts) + "".join([*parts, *bodies]))


def html_table(table: Table) -> str:
    """Returns the rows of a table as HTML."""
    if not table.rows:
        return ""
    return pages.table([*table.rows[0]], [[*row.values()] for row in table.rows])
