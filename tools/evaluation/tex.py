"""TeX inside a text as MathML, which browsers show without a script or a font file."""

import functools
import html
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert_to_element

# Dollars as pandoc reads them: no space inside the pair, no digit after it, so that
# "$5 and $6" stays money.
_MATH = re.compile(
    r"\$\$(?P<block>.+?)\$\$|\\\[(?P<bracket>.+?)\\\]|\\\((?P<inline>.+?)\\\)"
    r"|\$(?=\S)(?P<dollar>[^$]*?[^\s$\\])\$(?!\d)",
    re.S,
)


def to_html(text: str) -> str:
    """A text as HTML: formulas as MathML, all else escaped.

    A formula that cannot be converted stays as it was written.
    """
    parts, end = [], 0
    for found in _MATH.finditer(text):
        parts.append(html.escape(text[end : found.start()]))
        kind = found.lastgroup
        display = "block" if kind in ("block", "bracket") else "inline"
        parts.append(_mathml(found[kind], display) or html.escape(found[0]))
        end = found.end()
    return "".join([*parts, html.escape(text[end:])])


def formula(tex: str) -> str:
    """A formula without delimiters, such as an answer, as HTML."""
    return _mathml(tex, "inline") or html.escape(tex)


@functools.lru_cache(maxsize=20_000)
def _mathml(tex: str, display: str) -> str | None:
    if len(tex) > 2000:
        return None
    try:
        root = convert_to_element(tex, display=display)
    # Text of models: whatever the converter trips on is shown as it is.
    except Exception:
        return None
    # Its texts mix what a model wrote with entities: all becomes text, and is escaped.
    for node in root.iter():
        node.text = html.unescape(node.text) if node.text else node.text
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
