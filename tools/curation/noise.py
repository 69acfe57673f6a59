"""What was lost or added on the way from the page to the row."""

import re
import unicodedata

from tools.curation.patterns import any_of, found, snippet
from tools.curation.row import Row

_LINK = any_of(r"https?://\S+", r"\bwww\.\w+", r"\[url\b", r"\bhref\s*=")
_IMAGE = any_of(
    r"<image[\s_]*\d*\s*>",
    r"<img\b",
    r"!\[[^\]]*\]",
    r"\\includegraphics",
    r"\[im(?:g|age)\b",
    r"\[(?:figure|diagram)[^\]]*\]",
    r"\.(?:png|jpe?g|gif|svg|webp|bmp)\b",
    r"data:image/",
)
_DRAWING = any_of(
    r"\[/?asy\]", r"\\begin\{(?:asy|tikzpicture|picture|pspicture)\}", r"\bdraw\(.*--"
)
_HTML = any_of(
    r"</?(?:div|span|table|t[rdh]|tbody|a|ul|ol|li|h[1-6]|pre|code|script|style|iframe"
    r"|video|audio|button|input|form|hr|su[bp]|math|svg|details|summary)\b[^<>]*/?>",
    r"&[a-z]{2,8};",
)

_FIGURE = (
    r"(?:figures?|diagrams?|pictures?|illustrations?|drawings?|sketch|photos?"
    r"|photographs?|fig\.)(?![a-z])"
)
_POINTING = (
    r"(?: (?:following|adjoining|accompanying|given|adjacent|above|below|left|right"
    r"|first|second|top|same|next|provided|attached|partial|corresponding))?"
)
_FIGURE_ABSENT = any_of(
    # "as shown in the left figure", "pictured by a diagram"
    r"\b(?:shown|pictured|depicted|illustrated|drawn|displayed|sketched|seen|indicated)"
    rf" (?:(?:in|on|by|as) )?(?:(?:the|this|that|each|a) )?(?:\w+ ){{0,3}}?{_FIGURE}",
    # "in the diagram", "see figure"
    rf"\b(?:in|on|from|consider|given|using) (?:the|this|these"
    rf"|that){_POINTING} {_FIGURE}",
    rf"\b(?:see|cf\.?|refer to|referring to) (?:the |this )?(?:\w+ )?{_FIGURE}",
    # "the figure below", "this diagram shows"
    rf"\b(?:the|this|following|adjoining|accompanying) (?:\w+ )?{_FIGURE}"
    r" (?:(?:shown |given |drawn )?(?:below|above|here)|(?:at|on|to) (?:the )?"
    r"(?:left|right|top|bottom)|shows|indicates|depicts|illustrates|represents"
    r"|is shown"
    r"|are shown)",
    r"\b(?:figure|fig\.)(?: ?\(?\d| ?\([a-z]\)| (?-i:[A-Z])\b)",
    rf"{_FIGURE} (?:is )?(?:not shown|not to scale|not provided|not drawn|omitted)",
)
_SHOWN_ABSENT = any_of(
    r"\b(?:as|are|is|be|graph|grid|map|board|pattern|shape|network|spinner|square|triangle"
    r"|rectangle|circle|hexagon|cube|array|region|arrangement|configuration|path|line)s?"
    r" (?:partially )?(?:shown|pictured|depicted|illustrated|displayed)(?: here)?"
    r"(?: (?:below|above|(?:at|to|on) the (?:right|left)))?"
    r"(?=\s*(?:[,.;:?)]|$|with\b|has\b|have\b|is\b|are\b|by\b|which\b|so\b))",
    r"\b(?:graphs?|grid|map|number line|spinner|dartboard|clock|chart|histogram|plot"
    r"|board|maze|network|tiling|pattern|blueprint) (?:\w+ )?(?:shown )?(?:below"
    r"|above)\b",
    r"\bgraph(?:s|ed)? (?:of [^.?]{1,80} )?(?:(?:is|are) )?(?:partially )?"
    r"(?:shown|drawn|given|plotted|graphed) (?:below|above|here)",
    r"\b(?:bar|line|pie|circle) (?:graph|chart) (?:shows|below|above|represents)",
    r"\b(?:shown|graphed|pictured) (?:below|above)\b",
    r"\bthe (?:circles?|squares?|boxes|triangles?|dots) (?:and \w+ )?(?:below|above)"
    r"(?! (?:the|it|them|a)\b)\b",
    r"\bpictured\b",
)
# "On the number line, what is the value at M?" and no number in the text.
_LINE_ABSENT = re.compile(
    r"number line[^?]*\bwhat (?:is|are|number)\b[^?]*\b(?:value|number|coordinate)",
    re.I,
)
_IN_TEXT = any_of(
    r"\\begin\{(?:array|tabular|[pbvB]?matrix|align|cases)",
    r"```",
    r"\|[^|\n]*\|[^|\n]*\|",
    r"\\\[",
    r"\$\$",
    r"\\hline",
    r"\\bullet",
)
_STOP_WORDS = {
    "Spanish": "el la los las una que para por con del está cuál cuántos sea son halla",
    "French": "le la les une est dans pour que qui sont soit combien avec trouver deux",
    "German": "der die das und ist ein eine nicht wie mit für sei wird von den",
    "Portuguese": "uma que para com não são dos das qual quantos seja é os",
    "Italian": "il di che per una sono con della quanti sia nel gli è",
}
_ENGLISH = frozenset(
    "the of is a an and to in that find what how are if for be with on at by from it"
    " let given compute determine each which value".split()
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
    if _DRAWING.search(row.problem):
        return None
    match = _FIGURE_ABSENT.search(row.problem)
    if match and not re.search(r"\\begin\{(?:array|tabular)|```", row.problem):
        return snippet(row.problem, match)
    match = _SHOWN_ABSENT.search(row.problem)
    if match and not _IN_TEXT.search(row.problem):
        return snippet(row.problem, match)
    if not re.search(r"\d", row.problem):
        return found(_LINE_ABSENT, row.problem)
    return None


def other_language(row: Row) -> str | None:
    """A script or a vocabulary other than English."""
    for char in row.problem + row.answer:
        if ord(char) > 0x2FF and char.isalpha():
            name = unicodedata.name(char, "UNNAMED")
            if name.split()[0] not in _MATHEMATICAL:
                return f"{char} ({name.lower()})"
    prose = re.sub(r"\\[A-Za-z]+|\$[^$]*\$", " ", row.problem).lower()
    words = re.findall(r"[^\W\d_]+", prose)
    english = sum(word in _ENGLISH for word in words)
    for language, listed in _STOP_WORDS.items():
        foreign = sum(word in listed.split() for word in words)
        if len(words) >= 8 and foreign > english and foreign >= 0.12 * len(words):
            return f"{language}: {' '.join(words[:8])}"
    return None


CHECKS = {
    "link": link,
    "image": image,
    "drawing_code": drawing_code,
    "html": html,
    "missing_figure": missing_figure,
    "other_language": other_language,
}
