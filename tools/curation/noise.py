"""What was lost or added on the way from the page to the row."""

import re
import unicodedata

from tools.curation.grammar import any_of, found
from tools.curation.row import Row

_LINK = any_of(r"https?://\S+", r"\bwww\.\w+", r"\[url\b")
_IMAGE = any_of(
    r"<image[\s_]*\d*\s*>",
    r"<img\b|!\[[^\]]*\]|\\includegraphics|\[im(?:g|age)\b",
    r"\.(?:png|jpe?g|gif|svg)\b",
)
_DRAWING = any_of(r"\[/?asy\]", r"\\begin\{(?:asy|tikzpicture|pspicture)\}")
_HTML = re.compile(r"</?(?!image)[a-z]{2,}[1-6]?(?: [a-z]+=[^<>]*)?/?>", re.I)

# What is pointed at, and what points: "in the left diagram", "the star shown".
_FIGURE = (
    r"(?:figures?|diagrams?|pictures?|illustrations?|drawings?|sketch|fig\.)(?![a-z])"
)
_SEEN = "(?:shown|pictured|depicted|illustrated)"
_THERE = "(?:below|above|here|(?:at|to|on) the (?:left|right))"
_FIGURE_ABSENT = any_of(
    rf"\b(?:{_SEEN}|drawn|indicated) (?:(?:in|on|by|as) )?"
    rf"(?:(?:the|this|that|each|a) )?(?:\w+ ){{0,2}}{_FIGURE}",
    rf"\b(?:see|(?:see|in|on|from|consider|given|using) (?:the|this|these|that))"
    rf" (?:\w+ )?{_FIGURE}",
    rf"\b(?:the|this|following) (?:\w+ )?{_FIGURE} (?:{_THERE}|is {_SEEN})",
    rf"\b(?:{_FIGURE}|graph|chart) (?:shows|indicates|represents|depicts)\b",
    r"\b(?:figure|fig\.) ?\(?\d",
)
_SHOWN_ABSENT = any_of(
    rf"\b{_SEEN} {_THERE}",
    rf"\b{_SEEN}(?=\s*(?:[,.;:?)]|$)| (?:with|has|have|is|are|which|so)\b)",
    r"\b(?:graph(?:ed)?|grid|map|chart|spinner|circles?|squares?|triangles?)"
    r" (?:below|above)(?! the[my]?\b)",
)
_TABLE = any_of(r"\\begin\{(?:array|tabular)", r"```", r"\|[^|\n]*\|[^|\n]*\|")
_DISPLAY = re.compile(r"\\\[|\$\$|\\bullet|\\begin")
_ENGLISH = frozenset(
    "the of is and to as by on than has that find what how are if for with at from it"
    " let given compute which value".split()
)
_MATHEMATICAL = (
    "GREEK LATIN MATHEMATICAL DOUBLE-STRUCK SCRIPT BLACK-LETTER MODIFIER ROMAN ANGSTROM"
    " KELVIN OHM PLANCK ALEF"
)


def link(row: Row) -> str | None:
    """A web link: what it shows is not in the text."""
    return found(_LINK, row.problem)


def image(row: Row) -> str | None:
    """An image, its link or its placeholder."""
    return found(_IMAGE, row.problem)


def drawing_code(row: Row) -> str | None:
    """A figure as Asymptote or TikZ source."""
    return found(_DRAWING, row.problem)


def html(row: Row) -> str | None:
    """HTML that carries structure, left after layout tags were undone."""
    return found(_HTML, row.problem) or found(_HTML, row.answer)


def missing_figure(row: Row) -> str | None:
    """The text leans on a figure that is not there."""
    if _DRAWING.search(row.problem) or _TABLE.search(row.problem):
        return None
    absent = found(_FIGURE_ABSENT, row.problem)
    if absent or _DISPLAY.search(row.problem):
        return absent
    return found(_SHOWN_ABSENT, row.problem)


def other_language(row: Row) -> str | None:
    """A script other than English, or a text without its commonest words."""
    for char in row.problem + row.answer:
        if ord(char) > 0x2FF and char.isalpha():
            name = unicodedata.name(char, "UNNAMED")
            if name.split()[0] not in _MATHEMATICAL:
                return f"{char} ({name.lower()})"
    prose = re.sub(r"\\[A-Za-z]+|\$[^$]*\$|\\\(.*?\\\)", " ", row.problem).lower()
    words = re.findall(r"[^\W\d_]{2,}", prose)
    english = sum(word in _ENGLISH for word in words)
    if len(words) >= 15 and english < 0.05 * len(words):
        return " ".join(words[:8])
    return None


CHECKS = {
    "link": link,
    "image": image,
    "drawing_code": drawing_code,
    "html": html,
    "missing_figure": missing_figure,
    "other_language": other_language,
}
