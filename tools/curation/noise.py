"""Finds problems with missing parts or foreign text, or that state their answer.

Solvers succeed on a row if its `strength` is at least `SOLVED`.
"""

import re

from tools.curation.evidence import SOLVED
from tools.curation.grammar import ASKS, FORMULA, any_of, found, sentences
from tools.curation.row import Row

# Source code of drawings, links, images, and HTML tags that carry structure.
_NOT_TEXT = any_of(
    r"\[/?asy\]|\\begin\{(?:asy|tikzpicture|pspicture)\}|\\includegraphics",
    r"https?://\S+|\bwww\.\w+|!\[[^\]]*\]",
    r"</?[a-z]{2,}[\s_]*\d*(?: [a-z]+=[^<>]*)?\s*/?>|<a href",
)

# Names of figures, and references to them, such as "in the left diagram".
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
# Scripts that mathematics in English does not use: Cyrillic to Georgian, East Asian.
_OTHER_SCRIPT = re.compile(r"[\u0400-\u1cff\u2e80-\ud7ff\uf900-\uffdc]")
_STATED = re.compile(r"\bA(?i:nswer)(?::[\s$\\(){}*~]*(?!boxed|Answer|_)\w|\. ?\$?\d)")
# "Hint: the answer is 2744", "(Answer 2744)", "[Ans. 2744]".
_SAYS = (
    r"(?:\b(?:answer|ans|hint|key|result)s?\b(?:[^.?!\n]{0,25}(?:\b(?:is|be|equals?)\b"
    r"|[=:\])])|\W{1,3})|\be\.g\.[^()?]{0,30}?)[\s$({]*(?<![\w.^/-])"
)
_ENDS = r"(?![\w/^]|\.\d)"
_DRAWING = re.compile(
    r"\[asy\].*?\[/asy\]|!\[[^\]]*\]\([^()\s]*\)|\[img\].*?\[/img\]", re.S
)
_AMOUNT = re.compile(r"label\(\"[^\"]*\d")
_DESCRIPTION = 150  # minimum length of a text that can describe a drawing
_POINTS = any_of(
    rf"\b{_FIGURE}|\b(?:shown|shaded|gr[ae]y|below|pictured|follow(?:s|ing))\b|图"
)
# Only the drawing shows which part is shaded.
_SHADED = any_of(r"\bshaded (?:region|area|part|figure|portion|circle|square|triangle)")
_DESCRIBED = any_of(
    r"\b(?:inside|outside|within|between|bounded|enclosed|common|overlap\w*|consist\w*"
    r"|form(?:s|ed)|shaded (?:as|is)|is shaded|in the (?:middle|cent(?:er|re)))\b"
)
_LOST = any_of(r"(?<![\\.])\\\s+[a-z]{2}")  # backslash without a command


def not_text(row: Row) -> str | None:
    """Finds links, images, drawings, HTML tags and backslashes without a command.

    An `[asy]` drawing or an image is allowed if solvers succeed, no label has a number,
    and the other text is long and does not refer to a figure.
    """
    text = bare = row.problem
    if row.strength >= SOLVED and not _AMOUNT.search(text):
        bare = _DRAWING.sub("", text)
    if len(bare) >= _DESCRIPTION and not _POINTS.search(bare):
        text = bare
    lost = found(_LOST, FORMULA.sub("", text.replace(r"\$", "")))
    return lost or found(_NOT_TEXT, text) or found(_NOT_TEXT, row.answer)


def missing_figure(row: Row) -> str | None:
    """Finds problems that refer to a missing figure.

    Problems with a table or an `[asy]` drawing are allowed. If solvers succeed, finds
    only problems with a shaded part that the text does not describe.
    """
    problem = row.problem
    if "[asy]" in problem or _TABLE.search(problem):
        return None
    if row.strength >= SOLVED:
        return None if _DESCRIBED.search(problem) else found(_SHADED, problem)
    return found(_FIGURE_ABSENT, problem)


def other_language(row: Row) -> str | None:
    """Finds foreign scripts in the gold, or in over 10% of the problem's letters.

    Latin and Greek are allowed. Letters in formulas of the problem are not counted. If
    solvers succeed, only the gold is checked.
    """
    problem = "" if row.strength >= SOLVED else row.problem
    prose = re.sub(r"\\[A-Za-z]+", "", FORMULA.sub("", problem))
    for text, share in ((row.answer, 0), (prose, 0.1)):
        other = _OTHER_SCRIPT.findall(text)
        if len(other) > share * sum(map(str.isalpha, text)):
            return "".join(other[:20])
    return None


def answer_leak(row: Row) -> str | None:
    """Finds problems that state their own answer, or any text after "Answer:"."""
    last = sentences(row.problem)[-1]
    is_prose = len(re.findall(r"[A-Za-z]{3,}", FORMULA.sub("", last))) > 1
    last = last if is_prose and not ASKS.search(last) else ""
    for answer in filter(None, row.answers):
        gold = re.escape(answer)
        if leak := found(
            re.compile(rf"boxed\s*{{\s*{gold}\s*}}|{_SAYS}{gold}{_ENDS}", re.I),
            row.problem,
        ):
            return leak
        ends = re.compile(rf"(?:=|\b(?:is|get|and))[\s$({{]*{gold}[\s$.)}}\\]*\Z")
        if leak := found(ends, last):
            return leak
    return found(_STATED, row.problem)


CHECKS = (not_text, missing_figure, other_language)
QUALITY_CHECKS = (answer_leak,)
