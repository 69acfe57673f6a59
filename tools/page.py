"""Renders self-contained HTML pages with tables, charts and sections.

Pages have no scripts and load no resources; their content security policy enforces
this. Text arguments are plain text and are escaped, unless a docstring says that they
are HTML.
"""

import dataclasses
import html
import math
import pathlib
import string
from collections.abc import Iterable, Sequence
from typing import Any

_TEMPLATE = pathlib.Path(__file__).with_suffix(".html")
COLOURS = 6  # number of series colours, `var(--c0)` to `var(--c5)`
_FEW = 30  # lines with at most this number of points have visible dots
_MOST_POINTS = 200  # of a line; others are left out
_MOST_TICKS = 5  # maximum number of intervals between the ticks of an axis


def document(title: str, body: str) -> str:
    """Returns a complete page; `body` is HTML."""
    template = string.Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=html.escape(title), body=body)


def tag(element: str, body: str = "", /, **attributes: Any) -> str:
    """Returns an HTML or SVG element; `body` is HTML.

    `class_` is written as `class`; other underscores become hyphens. Floats get one
    decimal.
    """
    words = []
    for key, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        words.append(f' {key.rstrip("_").replace("_", "-")}="{html.escape(text)}"')
    return f"<{element}{''.join(words)}>{body}</{element}>"


def section(title: str, *bodies: str) -> str:
    """Returns a heading and its HTML bodies, or "" if all bodies are empty."""
    body = "".join(bodies)
    return tag("section", tag("h2", html.escape(title)) + body) + "\n" if body else ""


def note(text: str, kind: str = "soft") -> str:
    """Returns a paragraph of CSS class `kind`; text between backticks is code."""
    pieces = html.escape(text).split("`")
    marked = [tag("code", p) if i % 2 else p for i, p in enumerate(pieces)]
    return tag("p", "".join(marked), class_=kind)


def text(content: str, most: int) -> str:
    """Returns preformatted text, without its middle if over `most` characters."""
    if len(content) > most:
        half = most // 2
        gap = f"\n[... {len(content):,} characters in all ...]\n"
        content = f"{content[:half]}{gap}{content[-half:]}"
    return tag("pre", html.escape(content))


def details(summary: str, body: str, kind: str = "") -> str:
    """Returns a summary whose HTML body opens on a click; `kind` is its CSS class."""
    return tag("details", tag("summary", html.escape(summary)) + body, class_=kind)


def plots(charts: Sequence[str]) -> str:
    """Returns a grid of charts, which are HTML, or "" if there are none."""
    return tag("div", "".join(charts), class_="plots") if charts else ""


def filtered(
    kinds: Sequence[str], rows: Sequence[tuple[str, str]], *, name: str = "kind"
) -> str:
    """Returns rows below radio buttons that show all rows or only those of a kind.

    Args:
      kinds: kinds in the order of their buttons, each a word of ASCII letters; a kind
        without rows gets no button.
      rows: the kinds of each row, separated by spaces, and its HTML.
      name: name of the button group, unique in the page.
    """
    present = {kind for of_row, _ in rows for kind in of_row.split()}
    radio = {"type": "radio", "name": name}
    rules, buttons = "", tag("label", tag("input", checked="", **radio) + "all")
    for kind in filter(present.__contains__, kinds):
        checked = f'.filtered:has(input[value="{kind}"]:checked)'
        rules += f"{checked} .row:not(.k-{kind}){{display:none}}"
        buttons += tag("label", tag("input", value=kind, **radio) + html.escape(kind))
    shown_rows = (
        tag("div", row, class_=" ".join(["row", *(f"k-{k}" for k in of_row.split())]))
        for of_row, row in rows
    )
    body = tag("style", rules) + tag("div", buttons, class_="filters")
    body += tag("div", "".join(shown_rows), class_="list")
    return tag("div", body, class_="filtered")


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table, or "" if `rows` is empty.

    Columns with a number in the first row are right-aligned.
    """
    if not rows:
        return ""
    kinds = [{"class_": "number"} if is_number(value) else {} for value in rows[0]]

    def line(name: str, cells: Sequence[Any]) -> str:
        texts = map(html.escape, map(shown, cells))
        pairs = zip(texts, kinds, strict=True)
        return tag("tr", "".join(tag(name, cell, **kind) for cell, kind in pairs))

    body = line("th", head) + "".join(line("td", row) for row in rows)
    return tag("div", tag("table", body), class_="wide")


# -- charts --------------------------------------------------------------------------


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """Returns a chart with one horizontal bar for each (label, value) pair."""
    top = max((value for _, value in values), default=1) or 1
    rows = [
        (label, _mark("bar", 0, value / top, 0), shown(value) + unit)
        for label, value in values
    ]
    return _rows(title, rows)


def dots(
    title: str, rows: Sequence[tuple[str, float, tuple[float, float] | None, int]]
) -> str:
    """Returns a chart of shares with their intervals on an axis from 0 to 100%.

    A row is a label, a share in 0..1, its interval or None, and a colour number.
    """
    drawn = []
    for label, value, interval, colour in rows:
        marks = _mark("interval", *interval, colour) if interval else ""
        marks += _mark("dot", value, value, colour)
        drawn.append((label, marks, f"{100 * value:.1f}"))
    return _rows(title, drawn)


def _mark(kind: str, low: float, high: float, colour: int) -> str:
    low, high = (100 * min(max(share, 0.0), 1.0) for share in (low, high))
    where = f"left:{low:.1f}%;width:{high - low:.1f}%"
    return tag("i", class_=kind, style=f"{where};{_paint(colour)}")


def _rows(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    cells = (
        tag("span", html.escape(label))
        + tag("div", marks, class_="track")
        + tag("span", html.escape(value), class_="soft")
        for label, marks, value in rows
    )
    return _figure(title, tag("div", "".join(cells), class_="rows"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Describes one line of a chart."""

    label: str  # name in the legend
    points: Sequence[tuple[float, float]]  # finite (x, y) in ascending order of x
    colour: int = 0  # colour number
    raw: Sequence[tuple[float, float]] = ()  # unsmoothed points, drawn faintly


def lines(title: str, series: Sequence[Series]) -> str:
    """Returns a line chart over steps; at least one series must have a point."""
    width, height, left, right, top, bottom = 520, 220, 54, 10, 8, 196
    xs, ys = zip(*(p for s in series for p in (*s.points, *s.raw)), strict=True)
    x_low, x_high, y_ticks = min(xs), max(xs), ticks(ys)
    x_high += x_high == x_low

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (width - left - right) * (x - x_low) / (x_high - x_low),
            bottom - (bottom - top) * (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]),
        )

    def path(points: Iterable[tuple[float, float]]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in points)

    def label(x: float, y: float, value: float, kind: str) -> str:
        return tag("text", _tick(value), x=x, y=y, class_=kind)

    marks: list[str] = []
    legend = ""
    for value in y_ticks:
        _, y = at(x_low, value)
        rule = {"x1": left, "x2": width - right, "y1": y, "y2": y}
        marks += [tag("line", **rule), label(left - 6, y + 4, value, "y")]
    for value in ticks(xs):
        if x_low <= value <= x_high and value.is_integer():
            marks.append(label(at(value, 0)[0], height - 8, value, "x"))
    for s in series:
        paint, points = _paint(s.colour), _thinned(s.points)
        for kind, some in (("raw", _thinned(s.raw)), ("curve", points)):
            if some:
                line = path(some)
                marks.append(tag("polyline", points=line, style=paint, class_=kind))
        kind = "seen point" if len(points) <= _FEW else "point"
        for point in points:
            step, shown_value = map(shown, point)
            hover = tag("title", html.escape(f"{s.label}, step {step}: {shown_value}"))
            x, y = at(*point)
            marks.append(tag("circle", hover, class_=kind, cx=x, cy=y, style=paint))
        legend += tag("span", tag("i", style=paint) + html.escape(s.label))
    drawing = tag("svg", "".join(marks), viewBox=f"0 0 {width} {height}", role="img")
    return _figure(title, drawing + tag("div", legend, class_="legend"))


def ticks(values: Sequence[float]) -> list[float]:
    """Returns at most six evenly spaced round numbers that enclose the values."""
    low, high = min(values, default=0.0), max(values, default=1.0)
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


def is_number(value: Any) -> bool:
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


def _figure(title: str, body: str) -> str:
    return tag("figure", tag("figcaption", html.escape(title)) + body)


def _paint(colour: int) -> str:
    return f"--paint:var(--c{colour % COLOURS})"


def _tick(value: float) -> str:
    if 0 < abs(value) < 1e-3:
        return f"{value:.3g}" if abs(value) < 1e-4 else f"{1e4 * value:.3g}e-4"
    return f"{value / 1000:,g}k" if abs(value) >= 10_000 else f"{value:g}"


def _thinned(points: Sequence[Any]) -> list[Any]:
    """Returns every n-th point and the last one, at most `_MOST_POINTS + 1`."""
    apart = math.ceil(len(points) / _MOST_POINTS) or 1
    some = list(points[::apart])
    return some if not points or some[-1] == points[-1] else [*some, points[-1]]
