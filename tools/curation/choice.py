"""Multiple choice: questions with options, and answers that name them.

Such rows go. Without the options many questions mean something else, and a solve rate
that was measured beside the options says nothing about the question alone.
"""

import re
from collections.abc import Iterable

from tools.curation.grammar import ASKS, STYLE, sentences

# Blanks between words: of an unbounded run what fails costs the third power.
_S = r"\s{0,8}"
# (A) or \textbf{(A)} anywhere; A) and A. where an option can begin.
_ANYWHERE = (
    rf"\$?{_S}(?:{STYLE}{_S}\{{?{_S}|\{{{_S}{STYLE}{_S})?(?<![A-Za-z0-9_\\])"
    rf"\({_S}(?:{STYLE}{_S}\{{?)?([A-Z]){_S}\}}?{_S}(?:\\{_S})?\)"
)
_AT_BREAK = (
    rf"(?:^|\n|\s{{2}}|(?<=[:?.;,$])\s|\\q?quad|\s(?=\*\*|[A-Z]\)))"
    rf"(?:[-*\s]|(?<!\$)\$(?!\$)){{0,8}}(?:{STYLE}{_S}\{{?)?\$?([A-Z])(?:\$|{_S})"
    r"\*{0,2}[).:]\*{0,2}\}?(?=[\s$\\\dA-Z*(-])"
)
# What is taken from an answer before it is read as the name of options.
_STYLING = re.compile(rf"{STYLE}(?![a-z])|\\(?=\W)|[{{}}\s$.]")
_NAMES_OPTIONS = re.compile(
    r"\([A-Za-j]\)|(?:\(?[①-⑩]\)?|\((?:\d|i{1,3}|iv|v)\)|[,，、;]|and)+"
)


def find_choices(problem: str) -> str | None:
    """The labels of the options that a problem ends with, such as "ABCD"."""
    for style in (_ANYWHERE, _AT_BREAK):
        marks = _in_order(re.finditer(style, problem))
        if len(marks) < 3:
            continue
        # Persons speaking and conditions are lettered too, and the question comes last.
        last = problem[marks[-1].end() :]
        _, *after = sentences(" ".join(last.split()))
        if "?" not in last and not any(map(ASKS.search, after)):
            return "".join(mark[1] for mark in marks)
    return None


def _in_order(marks: Iterable[re.Match]) -> list[re.Match]:
    """The longest run of labels that follow each other, I left out or not."""
    runs: dict[str, list[re.Match]] = {}
    for mark in marks:
        back = (chr(ord(mark[1]) - n) for n in (1, 2) if n == 1 or mark[1] == "J")
        run = [*next(filter(None, map(runs.get, back)), []), mark]
        if len(run) > len(runs.get(mark[1], ())):
            runs[mark[1]] = run
    return max(runs.values(), key=len, default=[])


def is_choice_answer(answer: str) -> bool:
    """Whether the answer names options or statements rather than a value."""
    return _NAMES_OPTIONS.fullmatch(_STYLING.sub("", answer)) is not None
