"""The one maker of HTML pages: self-contained, without network, safe for any text.

A page is a title, a body, and where it has scripts the data that they show. Texts come
from models and from other people's folders: whoever makes a body escapes them, and a
policy in the page refuses whatever would be loaded, and every script but ours.
"""

import base64
import dataclasses
import hashlib
import html
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

_HERE = pathlib.Path(__file__)
_SHARED = {kind: _HERE.with_suffix(f".{kind}") for kind in ("css", "js")}
COLOURS = 6
"""Colours of series, `var(--c0)` and so on."""


def document(
    title: str, body: str, *, style: str = "", script: str = "", data: Any = None
) -> str:
    """A whole page.

    Args:
      title: plain text.
      body: HTML, every foreign text in it escaped.
      style: the page's own, after the shared one.
      script: the page's own; it finds `data`, `$(id)` and `element(...)`.
      data: what is JSON, for the script.
    """
    css = _SHARED["css"].read_text(encoding="utf-8") + style
    scripts = ""
    allowed = "'none'"
    if script:
        code = _SHARED["js"].read_text(encoding="utf-8") + script
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        allowed = f"'sha256-{digest}'"
        scripts = (
            f'<script id="data" type="application/json">{embedded(data)}</script>\n'
            f"<script>{code}</script>\n"
        )
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{css}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{scripts}</body>\n</html>\n"
    )


def parts(template: pathlib.Path) -> dict[str, str]:
    """Style, body and script of a page's own file, as `document` takes them."""
    text = template.read_text(encoding="utf-8")
    found = {}
    for name, tag in (("style", "style"), ("body", "main"), ("script", "script")):
        _, _, rest = text.partition(f"<{tag}>\n")
        found[name] = rest.partition(f"</{tag}>")[0]
    return found


def embedded(value: Any) -> str:
    """JSON inside a script block, which no text of it can end; NaN is null."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    return [_finite(x) for x in value] if isinstance(value, list | tuple) else value


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of plain texts and numbers; a column of numbers stands at the right."""
    first = rows[0] if rows else head
    kinds = [' class="number"' if is_number(value) else "" for value in first]

    def line(tag: str, cells: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{kind}>{html.escape(shown(cell))}</{tag}>"
            for cell, kind in zip(cells, kinds, strict=True)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    top = f"<tr>{line('th', head)}</tr>"
    return f'<div class="wide"><table>{top}{body}</table></div>'


def cards(figures: Sequence[tuple[str, str]]) -> str:
    """Figures with what each is, side by side."""
    inside = "".join(
        f'<div class="card"><b>{html.escape(figure)}</b>'
        f"<span>{html.escape(label)}</span></div>"
        for figure, label in figures
    )
    return f'<div class="cards">{inside}</div>'


def beside(columns: Sequence[str]) -> str:
    """Pieces of HTML side by side, one below the other where there is no room."""
    return f'<div class="beside">{"".join(f"<div>{c}</div>" for c in columns)}</div>'


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """A horizontal bar for each label."""
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
    """Shares with their intervals on one axis of 0 to 100%.

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
            ' stroke="var(--line)"/>'
            f'<text class="soft" x="{x(share):.1f}" y="{bottom + 14}"'
            f' text-anchor="middle">{100 * share:g}</text>'
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
    """A line of a chart.

    Attributes:
      label: for the legend.
      points: `(x, y)`, finite, x ascending.
      colour: number of its colour.
      raw: points to be shown faintly besides, of which the line is a smoothing.
      band: `(x, low, high)`.
    """

    label: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    raw: Sequence[tuple[float, float]] = ()
    band: Sequence[tuple[float, float, float]] = ()


def lines(title: str, series: Sequence[Series], *, most: int = 400) -> str:
    """A chart of lines over steps.

    Args:
      title: of the chart.
      series: its lines, one at least with a point.
      most: points of a line that are drawn; of more, every n-th and the last.
    """
    width, height, left, right, top, bottom = 520, 220, 54, 10, 8, 196
    every = [p for s in series for p in (*s.points, *s.raw)]
    every += [(x, y) for s in series for x, *ys in s.band for y in ys]
    x_low, x_high = min(x for x, _ in every), max(x for x, _ in every)
    x_high += x_high == x_low
    y_low, y_high = _range([y for _, y in every])

    def place(x: float, y: float) -> str:
        right_of = left + (width - left - right) * (x - x_low) / (x_high - x_low)
        above = bottom - (bottom - top) * (y - y_low) / (y_high - y_low)
        return f"{right_of:.1f},{above:.1f}"

    def path(points: Sequence[tuple[float, float]]) -> str:
        return " ".join(place(*point) for point in _thinned(points, most))

    marks = []
    for i in range(4):
        y = y_low + (y_high - y_low) * i / 3
        at = bottom - (bottom - top) * i / 3
        marks.append(
            f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}"'
            f' stroke="var(--line)"/><text class="soft" x="{left - 6}" y="{at + 4:.1f}"'
            f' text-anchor="end">{_axis(y, y_high - y_low)}</text>'
        )
    for x, anchor in ((x_low, "start"), (x_high, "end")):
        at = left if anchor == "start" else width - right
        marks.append(
            f'<text class="soft" x="{at}" y="{height - 8}" text-anchor="{anchor}">'
            f"{'step ' if anchor == 'start' else ''}{x:g}</text>"
        )
    legend = ""
    for s in series:
        paint = f"var(--c{s.colour % COLOURS})"
        if s.band:
            around = [(x, low) for x, low, _ in s.band]
            around += [(x, high) for x, _, high in reversed(s.band)]
            shape = " ".join(place(*point) for point in around)
            marks.append(f'<polygon points="{shape}" fill="{paint}" opacity="0.16"/>')
        if s.raw:
            marks.append(_polyline(path(s.raw), paint, ' opacity="0.3"'))
        marks.append(_polyline(path(s.points), paint, ' stroke-width="2"'))
        if len(s.points) == 1:
            x, y = place(*s.points[0]).split(",")
            marks.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{paint}"/>')
        legend += (
            f'<span><i style="background:{paint}"></i>{html.escape(s.label)}</span>'
        )
    legend = f'<div class="legend">{legend}</div>' if legend else ""
    return _figure(title, width, height, marks, below=legend)


def plain_code(text: str) -> str:
    """A text whose backticks mark code, as HTML."""
    pieces = html.escape(text).split("`")
    return "".join(
        f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces)
    )


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value of a table: integers with commas, other numbers with four digits."""
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


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest, apart where they are equal but for rounding."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low > 1e-9 * abs(high):
        return low, high
    apart = abs(low) / 10 or 1.0
    return low - apart, high + apart


def _axis(value: float, span: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    digits = max(0, min(4, 2 - math.floor(math.log10(span))))
    return f"{value:.{digits}f}"


def _thinned(points: Sequence[Any], most: int) -> Sequence[Any]:
    apart = math.ceil(len(points) / most) or 1
    some = list(points[::apart])
    return some if not points or some[-1] == points[-1] else [*some, points[-1]]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
