"""Finds what was lost or added between the page and the row."""

import re

from tools.curation.evidence import SOLVED
from tools.curation.grammar import FORMULA, any_of, found
from tools.curation.row import Row

# A drawing's source, a link, an image, a tag that carries structure or holds a place.
_NOT_TEXT = any_of(
    r"\[/?asy\]|\\begin\{(?:asy|tikzpicture|pspicture)\}|\\includegraphics",
    r"https?://\S+|\bwww\.\w+|!\[[^\]]*\]",
    r"</?[a-z]{2,}[\s_]*\d*(?: [a-z]+=[^<>]*)?\s*/?>|<a href",
)

# What is pointed at, and what points: "in the left diagram", "the star shown".
_FIGURE = r"(?:(?:figure|diagram|picture|illustration|drawing)s?|sketch|fig\.)(?![a-z])"
_FIGURE_ABSENT = any_of(
    rf"\b(?:see|(?:see|in|on|from|consider|given|using) (?:the|this|these|that))"
    rf" (?:\w+ )?{_FIGURE}",
    rf"\b(?:{_FIGURE}|graph|chart) (?:shows|indicates|represents|depicts)\b",
    r"\b(?:figure|fig\.) ?\(?\d",
    rf"\b(?:given|following|attached|accompanying) {_FIGURE}",
)
_TABLE = any_of(
    r"\\begin\{(?:array|tabular)|```|\|[^|\n]*\|[^|\n]*\||(?:[^|\n]+\|[^|\n]+\n){2}"
)
# Scripts that mathematics does not use: Cyrillic to Georgian, East Asian.
_OTHER_SCRIPT = re.compile(r"[\u0400-\u1cff\u2e80-\ud7ff\uf900-\uffdc]")
_STATED = re.compile(r"\bA(?i:nswer)(?::[\s$\\(){}*~]*(?!boxed|Answer|_)\w|\. ?\$?\d)")
# "Hint: the answer is 2744", "(Answer 2744)", "[Ans. 2744]".
_SAYS = (
    r"(?:\b(?:answer|ans|hint|key|result)s?\b(?:[^.?!\n]{0,25}(?:\b(?:is|be|equals?)\b"
    r"|[=:\])])|\W{1,3})|\be\.g\.[^()?]{0,30}?)[\s$({]*(?<![\w.^/-])"
)
_ENDS = r"(?![\w/^]|\.\d)"


def not_text(row: Row) -> str | None:
    """Finds links, images or placeholders, drawings, and HTML with structure."""
    return found(_NOT_TEXT, row.problem) or found(_NOT_TEXT, row.answer)


def missing_figure(row: Row) -> str | None:
    """Finds texts that point at a missing figure, unless solvers succeed without it."""
    problem = row.problem
    if row.strength >= SOLVED or "[asy]" in problem or _TABLE.search(problem):
        return None
    return found(_FIGURE_ABSENT, problem)


def other_language(row: Row) -> str | None:
    """Finds other scripts: in the gold, or in a tenth of the prose."""
    prose = re.sub(r"\\[A-Za-z]+", "", FORMULA.sub("", row.problem))
    for text, share in ((row.answer, 0), (prose, 0.1)):
        other = _OTHER_SCRIPT.findall(text)
        if len(other) > share * sum(map(str.isalpha, text)):
            return "".join(other[:20])
    return None


def answer_leak(row: Row) -> str | None:
    """Finds problems that state their own answer."""
    for answer in filter(None, row.answers):
        gold = re.escape(answer)
        if told := found(
            re.compile(rf"boxed\s*{{\s*{gold}\s*}}|{_SAYS}{gold}{_ENDS}", re.I),
            row.problem,
        ):
            return told
    return found(_STATED, row.problem)


CHECKS = (not_text, missing_figure, other_language)
QUALITY_CHECKS = (answer_leak,)
