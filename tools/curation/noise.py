"""What was lost or added on the way from the page to the row, the question included."""

import re
import unicodedata

from tools.curation import grammar
from tools.curation.grammar import ASKS, AUXILIARY, FORMULA, any_of, found, sentences
from tools.curation.row import Row

# A drawing's source, a link, an image, a tag that carries structure or holds a place.
_NOT_TEXT = any_of(
    r"\[/?asy\]|\\begin\{(?:asy|tikzpicture|pspicture)\}|\\includegraphics",
    r"https?://\S+|\bwww\.\w+|!\[[^\]]*\]",
    r"</?[a-z]{2,}[\s_]*\d*(?: [a-z]+=[^<>]*)?\s*/?>|<a href",
)

# What is pointed at, and what points: "in the left diagram", "the star shown".
_FIGURE = r"(?:(?:figure|diagram|picture|illustration|drawing)s?|sketch|fig\.)(?![a-z])"
_SEEN = "(?:shown|pictured|depicted|illustrated)"
_THERE = "(?:below|above|here|(?:at|to|on) the (?:left|right))"
_FIGURE_ABSENT = any_of(
    rf"\b(?:see|(?:see|in|on|from|consider|given|using) (?:the|this|these|that))"
    rf" (?:\w+ )?{_FIGURE}",
    rf"\b(?:{_FIGURE}|graph|chart) (?:shows|indicates|represents|depicts)\b",
    r"\b(?:figure|fig\.) ?\(?\d",
)
_SHOWN_ABSENT = any_of(
    rf"\b{_SEEN}(?=\s*(?:[,.;:?)]|$)| (?:{_THERE}|with|has|have|is|are|which|so)\b)"
)
# What a figure only shows where words tell all of it, and what it alone may say.
_ONLY_SHOWN = any_of(
    rf"\((?:see |(?:as {_SEEN} )?in )?(?:the )?(?:\w+ )?{_FIGURE}[^()]{{0,12}}\)",
    rf"(?-i:As {_SEEN} in|In)(?: th\w+)?(?: \w+)? {_FIGURE}[^,]{{0,12}},",
    rf",? as {_SEEN}(?: [io]n [^,.;:?]{{0,30}}| {_THERE})?(?=\s*[,.;:?])",
    rf"\bThe (?:\w+ )?{_FIGURE} shows(?= an? )",
)
_ONLY_THERE = any_of(
    r"shaded|\\angle \d|\b(?:marked|indicated|labell?ed|numbers?|written|colou?red|ways"
    r"|gr[ae]y|chart|table|grid|tile[sd]?|patterns?|paths?|arrows?|dots?|differ|folded"
    r"|over(?:lap|laid)|symmetric\w*|identical|pieces|sizes|cubes|black|(?:formed|placed"
    r"|arranged|stacked|made|cut|divided)\b[^.]{0,60} as shown)\b"
)
_LETTER = re.compile(r"\\[A-Za-z]+|([A-Z](?![a-z])|(?<![A-Za-z])[a-z](?![A-Za-z]))")
_TABLE = any_of(
    r"\\begin\{(?:array|tabular)|```|\|[^|\n]*\|[^|\n]*\||(?:[^|\n]+\|[^|\n]+\n){2}"
)
# In one line what TeX raises and stacks; a letter and a number, perhaps its power.
_RUN_TOGETHER = any_of(
    r"\([^()]*[-−+√π][^()]*\)\d+(?!\d*[.)]\s)",
    r"[=<>≤≥+−*/(]\s*[−-]?\d+[ ]\d+(?!\d*(?:[,.]\d|[ ]?[\d/]|th))(?<![ ]\d{3})",
    r"[\w∞)] (?-i:X) [a-z]\s?=\s?\d|π[ ]\d|\b1[ ]?√",
)
_LETTER_NUMBER = re.compile(r"(?<![A-Za-z\\_^{.,])([a-z])\d+(?![\w.]*[A-Za-z])")
_DISPLAY = re.compile(r"\\\[|\$\$|\\bullet|\\begin")
_MATHEMATICAL = (
    "GREEK LATIN MATHEMATICAL DOUBLE-STRUCK SCRIPT BLACK-LETTER MODIFIER ROMAN ANGSTROM"
    " KELVIN OHM PLANCK ALEF"
)
# A gap, or a last word that leaves the sentence open for the answer to end.
_OPEN = any_of(
    r"\\_|\\q?quad|\\underline|\\boxed|[(\[]\s*(?:\\\s|\$\$)*[)\]]|…|▲|\s{3,}",
    rf"(?:\b(?:{AUXILIARY}|be|equals?|of|by|to|in|as|at|from|than|with|for|then|number)"
    r"|=|:|\.{3})(?:(?<!\\)\([^()]*[a-z]{3}[^()]*\)|[\s.,$:\\)\]]|\\end\{\w+\})*$|[a-z]$",
)
_WORD = re.compile(r"(?<!\\)\b[a-z]{3,}", re.I)
_STATED = re.compile(r"\bA(?i:nswer)(?::[\s$\\(){}*~]*(?!boxed|Answer|_)\w|\. ?\$?\d)")
# What follows says of an answer only how it is written.
_FORM = any_of(r"(?:\bthe )?(?:original )?\banswer (?:is|has|can)\b[^.?]{0,30}\bform")
# What gives or states: "intersects the side", but not "the lengths of the sides".
_TELLS = any_of(
    r"^\W*(?:let|suppose|given|assume|consider|define|if|for|in)\b",
    r"\b(?:is|are|was|were|has|have|had|equals?|holds?|must|cannot)\b",
    r"\b[a-z]{3,}s (?:the|an?|its|each|every)\b",
)


def not_text(row: Row) -> str | None:
    """A link, an image or its placeholder, a drawing's source, HTML with structure."""
    return found(_NOT_TEXT, row.problem) or found(_NOT_TEXT, row.answer)


def missing_figure(row: Row) -> str | None:
    """The text leans on a figure that is not there, and half fail without it."""
    solved = (row.solve_rate or 0) >= 0.5
    if solved or "[asy]" in row.problem or _TABLE.search(row.problem):
        return None
    problem = _ONLY_SHOWN.sub("", row.problem)
    if _ONLY_THERE.search(row.problem) or not _told(problem):
        problem = row.problem
    shown = _DISPLAY.search(problem) is None and found(_SHOWN_ABSENT, problem)
    return found(_FIGURE_ABSENT, problem) or shown or None


def _told(problem: str) -> bool:
    """Whether words tell what all letters are, of points not in a measure alone."""
    clauses = re.split(r"(?:(?<=[,;.?])|(?<=[,;.?]\$))\s", problem)
    told = "; ".join(one for one in clauses if not ASKS.search(one))
    placed = "; ".join(one for one in told.split("; ") if "=" not in one)
    formulas = map(" ".join, map(grammar.formulas, (problem, told, placed)))
    every, given, known = ({"", *_LETTER.findall(text)} for text in formulas)
    return every <= known | {*filter(str.islower, given)}


def lost_layout(row: Row) -> str | None:
    """Powers, fractions or limits run into the line, as what is copied from a page.

    A number behind a letter is a power where the letter has a value alone as well, and
    no first of several (x1, x2).
    """
    golds = [answer for answer in row.answers if not {*"\\^"} & {*answer}]
    text = "\n".join([FORMULA.sub(" ", row.problem), *golds])
    for power in _LETTER_NUMBER.finditer(text):
        name = power[1]
        alone = rf"[-+=(,]\s?{name}\b" if name in "ai" else rf"(?<![A-Za-z])\d*{name}\b"
        if f"{name}1" not in text and re.search(alone, text):
            return found(re.compile(re.escape(power[0])), text)
    return found(_RUN_TOGETHER, text)


def other_language(row: Row) -> str | None:
    """A script neither of English nor mathematics: a gold, or a tenth of the prose."""
    prose = re.sub(r"\\[A-Za-z]+", "", FORMULA.sub("", row.problem))
    for text, share in ((row.answer, 0), (prose, 0.1)):
        names = [unicodedata.name(c, "?") for c in text if c > "\u02ff" and c.isalpha()]
        other = [name.lower() for name in names if name.split()[0] not in _MATHEMATICAL]
        if len(other) > share * sum(map(str.isalpha, text)):
            return other[0]
    return None


def no_question(row: Row) -> str | None:
    """Nothing is asked.

    A sentence that tells nothing names what is wanted ("The area of the square") or
    orders it ("Name the largest"). To order only the answer's form is to ask nothing.
    """
    asked = _FORM.split(row.problem, maxsplit=1)[0].strip()
    if ASKS.search(asked) or _OPEN.search(asked):
        return None
    # A formula is to be worked out where it is all there is, and given beside words.
    told = [one for one in sentences(asked) if _WORD.search(FORMULA.sub("", one))]
    if asked == row.problem and not all(map(_TELLS.search, told or [asked])):
        return None
    return "ends: " + row.problem[-40:]


def answer_leak(row: Row) -> str | None:
    """The problem states its own answer, in a box or behind "Answer:"."""
    boxes = [box for a in row.answers if (box := f"boxed{{{a}}}") in row.problem]
    return boxes[0][:60] if boxes else found(_STATED, row.problem)


CHECKS = (not_text, missing_figure, lost_layout, other_language)
QUALITY_CHECKS = (no_question, answer_leak)
