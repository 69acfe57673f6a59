"""Makes self-contained HTML pages: tables, charts as inline SVG, sections.

Pages have no scripts and load nothing; a policy in the page enforces both. Values of a
curve appear on hover through SVG titles. Functions that take plain text escape it;
`document`, `section`, `columns` and `details` take bodies that are HTML already.
"""

import dataclasses
import html
import math
import pathlib
from collections.abc import Sequence
from typing import Any

_STYLE = pathlib.Path(__file__).with_suffix(".css")
_POLICY = (
    "default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " base-uri 'none'; form-action 'none'"
)
COLOURS = 6
"""Number of series colours, `var(--c0)` and so on."""


def document(title: str, body: str) -> str:
    """Returns a whole page; `title` is plain text, `body` is HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{html.escape(title)}</h1>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def section(title: str, *bodies: str) -> str:
    """Returns a heading and what stands under it; nothing for an empty section."""
    body = "".join(bodies)
    return f"<section><h2>{html.escape(title)}</h2>{body}</section>\n" if body else ""


def note(text: str, kind: str = "soft") -> str:
    """Returns a paragraph; `kind` is soft, bad or warning. Backticks mark code."""
    pieces = html.escape(text).split("`")
    marked = [f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces)]
    return f'<p class="{kind}">{"".join(marked)}</p>'


def text(content: str, most: int) -> str:
    """Returns a preformatted text, its middle left out beyond `most` characters."""
    if len(content) > most:
        half = most // 2
        gap = f"\n[... {len(content):,} characters in all ...]\n"
        content = f"{content[:half]}{gap}{content[-half:]}"
    return f"<pre>{html.escape(content)}</pre>"


def details(summary: str, body: str, kind: str = "") -> str:
    """Returns a body that opens on a click; `summary` and `kind` are plain text."""
    named = f' class="{html.escape(kind)}"' if kind else ""
    return f"<details{named}><summary>{html.escape(summary)}</summary>{body}</details>"


def columns(bodies: Sequence[str]) -> str:
    """Returns pieces of HTML side by side, stacked where there is no room."""
    return f'<div class="beside">{"".join(f"<div>{b}</div>" for b in bodies)}</div>'


def plots(charts: Sequence[str]) -> str:
    """Returns a grid of charts."""
    return f'<div class="plots">{"".join(charts)}</div>' if charts else ""


def filtered(
    kinds: Sequence[str], rows: Sequence[tuple[str, str]], *, name: str = "kind"
) -> str:
    """Returns rows with one radio button per kind that shows only rows of that kind.

    Args:
      kinds: plain words; those that no row has are left out.
      rows: `(kinds separated by spaces, HTML)`.
      name: of the buttons, unique in the page.
    """
    named = html.escape(name)
    found = {kind for of_row, _ in rows for kind in of_row.split()}
    shown_kinds = [kind for kind in kinds if kind in found]
    rules = ""
    buttons = f'<label><input type="radio" name="{named}" checked>all</label>'
    for kind in shown_kinds:
        rules += (
            f'.filtered:has(input[value="{kind}"]:checked) .row:not(.k-{kind})'
            "{display:none}"
        )
        buttons += (
            f'<label><input type="radio" name="{named}" value="{kind}">{kind}</label>'
        )
    body = "".join(
        f'<div class="row {" ".join(f"k-{html.escape(k)}" for k in of_row.split())}">'
        f"{row}</div>"
        for of_row, row in rows
    )
    return (
        f'<div class="filtered"><style>{rules}</style>'
        f'<div class="filters">{buttons}</div><div class="list">{body}</div></div>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table of plain texts and numbers; number columns are right-aligned."""
    if not rows:
        return ""
    kinds = [' class="number"' if is_number(value) else "" for value in rows[0]]

    def line(tag: str, cells: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{kind}>{html.escape(shown(cell))}</{tag}>"
            for cell, kind in zip(cells, kinds, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    top = f"<tr>{line('th', head)}</tr>"
    return f'<div class="wide"><table>{top}{body}</table></div>'


def cards(figures: Sequence[tuple[str, str]]) -> str:
    """Returns figures with their labels, side by side."""
    inside = "".join(
        f'<div class="card"><b>{html.escape(figure)}</b>'
        f"<span>{html.escape(label)}</span></div>"
        for figure, label in figures
    )
    return f'<div class="cards">{inside}</div>'


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """Returns a chart with one horizontal bar for each label."""
    step, left, right, width = 22, 150, 70, 520
    top = max((value for _, value in values), default=1) or 1
    marks = []
    for i, (label, value) in enumerate(values):
        y, bar = i * step, max(1.0, (width - left - right) * value / top)
        marks.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">'
            f"{html.escape(_cut(label, 22))}</text>"
            f'<rect class="bar" x="{left}" y="{y + 4}" width="{bar:.1f}" height="15"'
            f' rx="2"/><text class="soft" x="{left + bar + 6:.1f}" y="{y + 15}">'
            f"{html.escape(shown(value) + unit)}</text>"
        )
    return _figure(title, width, step * len(values) + 4, marks)


def dots(
    title: str, rows: Sequence[tuple[str, float, tuple[float, float] | None, int]]
) -> str:
    """Returns shares with their intervals on one axis of 0 to 100%.

    Args:
      title: of the chart.
      rows: label, share, interval if any, and the number of its colour.
    """
    width, left, right, step = 520, 190, 48, 22
    bottom = step * len(rows) + 4

    def x(share: float) -> float:
        return left + min(max(share, 0.0), 1.0) * (width - left - right)

    marks = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        marks.append(
            f'<line x1="{x(share):.1f}" x2="{x(share):.1f}" y1="2" y2="{bottom}"'
            f' stroke="var(--line)"/><text class="soft" x="{x(share):.1f}"'
            f' y="{bottom + 14}" text-anchor="middle">{100 * share:g}</text>'
        )
    for i, (label, value, interval, colour) in enumerate(rows):
        y, paint = 4 + step * (i + 0.5), f"var(--c{colour % COLOURS})"
        marks.append(
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">'
            f"{html.escape(_cut(label, 26))}</text>"
        )
        if interval:
            low, high = map(x, interval)
            marks.append(
                f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"'
                f' stroke="{paint}" stroke-width="2"/>'
            )
        marks.append(
            f'<circle cx="{x(value):.1f}" cy="{y}" r="4.5" fill="{paint}"/>'
            f'<text x="{width - right + 8}" y="{y + 4}">{100 * value:.1f}</text>'
        )
    return _figure(title, width, bottom + 20, marks)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Describes one line of a chart.

    Attributes:
      label: for the legend.
      points: `(x, y)`, finite, x ascending.
      colour: number of its colour.
      raw: points that are drawn faintly, if `points` smooths them.
      band: `(x, low, high)`.
    """

    label: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    raw: Sequence[tuple[float, float]] = ()
    band: Sequence[tuple[float, float, float]] = ()


def lines(title: str, series: Sequence[Series], *, most: int = 200) -> str:
    """Returns a chart of lines over steps, with round ticks and values on hover.

    Args:
      title: of the chart.
      series: its lines; at least one has a point.
      most: points of a line that are drawn; of more, every n-th and the last.
    """
    width, height, left, right, top, bottom = 520, 220, 54, 10, 8, 196
    every = [p for s in series for p in (*s.points, *s.raw)]
    every += [(x, y) for s in series for x, *ys in s.band for y in ys]
    x_ticks = ticks([x for x, _ in every], whole=True)
    y_ticks = ticks([y for _, y in every])
    x_low, x_high = min(x for x, _ in every), max(x for x, _ in every)
    x_high += x_high == x_low
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (width - left - right) * (x - x_low) / (x_high - x_low),
            bottom - (bottom - top) * (y - y_low) / (y_high - y_low),
        )

    def path(points: Sequence[tuple[float, float]]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)

    marks = []
    for y in y_ticks:
        at = place(x_low, y)[1]
        marks.append(
            f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}"'
            f' stroke="var(--line)"/><text class="soft" x="{left - 6}" y="{at + 4:.1f}"'
            f' text-anchor="end">{_tick(y)}</text>'
        )
    for x in (x for x in x_ticks if x_low <= x <= x_high):
        at = place(x, y_low)[0]
        marks.append(
            f'<text class="soft" x="{at:.1f}" y="{height - 8}"'
            f' text-anchor="middle">{_tick(x)}</text>'
        )
    legend = ""
    for s in series:
        paint = f"var(--c{s.colour % COLOURS})"
        points = _thinned(s.points, most)
        if s.band:
            around = [(x, low) for x, low, _ in s.band]
            around += [(x, high) for x, _, high in reversed(s.band)]
            marks.append(
                f'<polygon points="{path(around)}" fill="{paint}" opacity="0.16"/>'
            )
        if s.raw:
            raw = path(_thinned(s.raw, most))
            marks.append(_polyline(raw, paint, ' opacity="0.3"'))
        marks.append(_polyline(path(points), paint, ' stroke-width="2"'))
        small = "1" if len(points) > 1 else "3"
        marks += [
            f'<circle class="point" cx="{px:.1f}" cy="{py:.1f}" r="{small}"'
            f' fill="{paint}"><title>{html.escape(s.label)}, step {shown(x)}:'
            f" {shown(y)}</title></circle>"
            for x, y in points
            for px, py in (place(x, y),)
        ]
        named = html.escape(s.label)
        legend += f'<span><i style="background:{paint}"></i>{named}</span>'
    legend = f'<div class="legend">{legend}</div>'
    return _figure(title, width, height, marks, below=legend)


def ticks(
    values: Sequence[float], *, most: int = 5, whole: bool = False
) -> list[float]:
    """Returns at most `most + 1` round numbers, 1, 2 or 5 times a power of ten apart.

    They enclose the values; `whole` keeps them integers.
    """
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low <= 1e-9 * abs(high):  # equal but for rounding
        apart = abs(low) / 10 or 1.0
        low, high = low - apart, high + apart
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    if whole:
        size = max(size, 1.0)
    for step in (size, 2 * size, 5 * size, 10 * size, 20 * size):
        first = math.floor(low / step + 1e-9)
        last = math.ceil(high / step - 1e-9)
        if last - first <= most:
            break
    return [round(i * step, 12) for i in range(first, last + 1)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Formats a table's value: integers with commas, other numbers with four digits."""
    if isinstance(value, bool) or not is_number(value):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _figure(
    title: str, width: int, height: float, marks: Sequence[str], below: str = ""
) -> str:
    named = html.escape(title)
    return (
        f"<figure><figcaption>{named}</figcaption>"
        f'<svg viewBox="0 0 {width} {height:g}" role="img" aria-label="{named}">'
        f"{''.join(marks)}</svg>{below}</figure>"
    )


def _polyline(points: str, paint: str, more: str) -> str:
    return f'<polyline points="{points}" fill="none" stroke="{paint}"{more}/>'


def _tick(value: float) -> str:
    return f"{value / 1000:,g}k" if abs(value) >= 10_000 else f"{value:g}"


def _thinned(points: Sequence[Any], most: int) -> list[Any]:
    apart = math.ceil(len(points) / most) or 1
    some = list(points[::apart])
    return some if not points or some[-1] == points[-1] else [*some, points[-1]]


def _cut(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
