"""Renders reports, which are lists of sections, as Markdown and as HTML pages.

report = [Section("Levels", [{"level": 1, "problems": 12}], note="1 is the easiest.")]
text = markdown("Curation", report)
html = page("Curation", report)

The pages are self-contained: they have no scripts and load no resources, which their
content security policy enforces. The template page.html escapes all texts.
"""

import html
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jinja2
from markupsafe import Markup

from rl.files import markdown_table

Points = Sequence[tuple[float, float]]
_MOST_POINTS = 200  # of a line; others are left out
_MOST_TICKS = 5  # maximum number of intervals between the ticks of an axis
# edges of the area of a line chart, in a drawing of 520 x 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 510, 8, 196


class Series(NamedTuple):
    """Describes one line of a chart."""

    label: str  # name in the legend
    points: Points  # finite (x, y) in ascending order of x
    raw: Points = ()  # unsmoothed points, drawn faintly


class Lines(NamedTuple):
    """Describes a line chart over steps; at least one series must have a point."""

    title: str
    series: Sequence[Series]


class Dots(NamedTuple):
    """Describes a chart of shares with their intervals on an axis from 0 to 100%.

    A row is a label, a share in 0..1, its interval or None, and a colour number.
    """

    title: str
    rows: Sequence[tuple[str, float, tuple[float, float] | None, int]]


class Entry(NamedTuple):
    """Describes texts that open on a click, such as a completion."""

    summary: str
    texts: Sequence[str] = ()  # preformatted
    notes: Sequence[str] = ()  # above the texts
    # One word of ASCII letters each; buttons show only the entries of one kind.
    kinds: Sequence[str] = ()
    entries: Sequence["Entry"] = ()  # below the texts
    anchor: str = ""  # name for links such as report.html#ANCHOR


class Section(NamedTuple):
    """Holds a part of a report; Markdown has only its title, note and rows."""

    title: str  # heading, or ""
    rows: Sequence[Mapping[str, Any]] = ()  # of a table; the keys are the columns
    note: str = ""  # text below the heading
    charts: Sequence[Lines | Dots] = ()
    entries: Sequence[Entry] = ()

    @property
    def kinds(self) -> list[str]:
        return sorted({kind for entry in self.entries for kind in entry.kinds})


def markdown(title: str, report: Iterable[Section], *remarks: str) -> str:
    """Renders a report as Markdown, with `remarks` as a list at the end."""
    lines = [f"# {title}", ""]
    for section in report:
        rows = section.rows
        lines += [f"## {section.title}", ""] if section.title and rows else []
        lines += [section.note, ""] if section.note else []
        if rows:
            align = "".join("<>"[is_number(value)] for value in rows[0].values())
            cells = [[*map(shown, row.values())] for row in rows]
            lines += markdown_table([*rows[0]], cells, align)
    lines += [f"- {remark}" for remark in remarks]
    return "\n".join([*lines, ""] if remarks else lines)


def page(title: str, report: Iterable[Section]) -> str:
    """Renders a report as an HTML page, without its empty sections."""
    return _TEMPLATE.render(title=title, report=[s for s in report if any(s[1:])])


def cut(text: str, most: int) -> str:
    """Returns a text, without its middle if it has over `most` characters."""
    if len(text) <= most:
        return text
    gap = f"\n[... {len(text):,} characters in all ...]\n"
    return f"{text[: most // 2]}{gap}{text[-(most // 2) :]}"


def place(chart: Lines) -> dict[str, Any]:
    """Returns the ticks and points of a line chart, each with its place in the SVG."""
    every = [p for s in chart.series for p in (*s.points, *s.raw)]
    xs, ys = zip(*every, strict=True)
    low, high, y_ticks = min(xs), max(xs), ticks(ys)

    def x_at(x: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (x - low) / (high - low or 1), 1)

    def y_at(y: float) -> float:
        share = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return round(_BOTTOM - (_BOTTOM - _TOP) * share, 1)

    def placed(points: Points) -> list[tuple[float, float, str]]:
        apart = math.ceil(len(points) / _MOST_POINTS) or 1
        some = dict.fromkeys([*points[::apart], *points[-1:]])
        return [(x_at(x), y_at(y), f"step {shown(x)}: {shown(y)}") for x, y in some]

    x_ticks = [x for x in ticks(xs) if low <= x <= high and x.is_integer()]
    return {
        "x_ticks": [(shown(x), x_at(x)) for x in x_ticks],
        "y_ticks": [(shown(y), y_at(y)) for y in y_ticks],
        "lines": [(s.label, placed(s.points), placed(s.raw)) for s in chart.series],
    }


def ticks(values: Sequence[float]) -> list[float]:
    """Returns at most six evenly spaced round numbers that enclose the values."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * abs(high):  # equal up to rounding errors
        apart = abs(low) / 10 or 1.0
        low, high = low - apart, high + apart
    size = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    for step in (size, 2 * size, 5 * size, 10 * size, 20 * size):
        first = math.floor(low / step + 1e-9)
        last = math.ceil(high / step - 1e-9)
        if last - first <= _MOST_TICKS:
            break
    return [round(i * step, 12) for i in range(first, last + 1)]


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Formats a value of a table.

    Whole numbers and numbers from 1000 on get commas, others four significant digits.
    """
    if not is_number(value):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def with_interval(
    value: float, interval: Sequence[float] | None, form: str = ".1f", scale: float = 1
) -> str:
    """Formats `scale * value`, and in brackets its interval, such as 5.1 [4.8, 5.4]."""
    text, *ends = (f"{scale * x:{form}}" for x in (value, *(interval or ())))
    return f"{text} [{', '.join(ends)}]" if ends else text


def _marked(text: str) -> Markup:
    """Escapes a text; marks parts between backticks as code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(text)))


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters |= {"place": place, "shown": shown, "marked": _marked}
_ENVIRONMENT.tests["number"] = is_number
_TEMPLATE = _ENVIRONMENT.get_template("page.html")
