"""Multiple choice: finding the options, and turning the question into its value."""

import dataclasses
import re

from tools.curation.grammar import ASKS, STYLE, any_of
from tools.curation.repair import bare_answer

# Blanks, as many as stand between words: without a bound, what begins with a run of
# them and does not match costs the third power of its length.
_S = r"\s{0,8}"
# (A) or \textbf{(A)} anywhere; A) and A. where an option can begin.
_ANYWHERE = (
    rf"\$?{_S}(?:{STYLE}{_S}\{{?{_S}|\{{{_S}{STYLE}{_S})?(?<![A-Za-z0-9_\\])"
    rf"\({_S}(?:{STYLE}{_S}\{{?)?L{_S}\}}?"
    rf"{_S}(?:\\{_S})?\){_S}(?:\\[ ,;]|\}}|:|\$(?={_S}\$))*"
)
_AT_BREAK = (
    rf"(?:^|\n|\s{{2}}|(?<=[:?.;,$])\s|\\q?quad|\s(?=\*\*))[-*\s$]{{0,8}}"
    rf"(?:{STYLE}{_S}\{{?)?\$?L\$?{_S}\*{{0,2}}[).:]\*{{0,2}}\}}?(?=[\s$\\\d*(-])\*{{0,2}}"
)
_STYLES = (_ANYWHERE, _AT_BREAK)
_LETTERS_OF = "ABCDEFGH"

_NEEDS_OPTIONS = any_of(
    r"\b(?:which|choose|select|identify)\b[^.?]{0,40}\b(?:following|these|below|options?"
    r"|answers?)\b",
    r"\b(?:of|among) (?:the following|these)\b",
    r"\bfollowing \w+\b[^.?]{0,60}\b(?:is|are|could|must|can|best|not|true)\b",
    r"\b(?:best describes|(?:clos|near)est to|most likely|approximately equal)\b",
    r"\bwhich (?:one|statement|figure|graph|interval|expression)\b",
)
_NO_VALUE = re.compile(
    r"\b(?:none|neither|cannot|can't|not|impossible|all of|both|(?:an)?other|either"
    r"|undetermined|depends|no|(?:more|less) than|insufficient|uncertain)\b"
    r"|<image|\[asy",
    re.I,
)
_LETTER = re.compile(
    rf"(?:{STYLE}\s*\{{)?\s*\(?\s*(?:{STYLE}\s*\{{)?\s*([A-H])\s*\}}?\s*\)?\s*\}}?\.?"
)
_BRACKETED = re.compile(
    rf"(?:{STYLE}\s*\{{)?\s*\(\s*(?:{STYLE}\s*\{{)?[A-Ha-h]\}}?\s*\)\s*\}}?"
)
_LABELS = re.compile(
    r"(?:\$?\\?(?:text\{)?\s*[(]?(?:[①-⑩]|\((?:\d|i{1,3}|iv|v)\))[)]?"
    r"(?:\s|,|，|、|;|and|\\ |\\text\s*\{\s*and\s*\}|[}$])*)+"
)
_EDGE = re.compile(
    r"^(?:[\s~,;.:&}]|\\q?quad|\\\\|\\[ ,;])+"
    r"|(?<![\s~,;&])(?:[\s~,;&]|\\q?quad|\\\\|\\[ ,;])+$"
)
_CLOSING = re.compile(
    rf"{_S}(?:choices|options|answer choices|(?:the )?possible answers"
    r"|choose (?:the|one)[^.]{0,80}|\(please[^)]{0,80}\)"
    r"|\\begin\{(?:array|align\*?|tabular)\}(?:\{[^}]{0,20}\})?"
    rf"|{STYLE}{_S}\{{?|\\q?quad|\\\[|\(){_S}$",
    re.I,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """A multiple-choice question taken apart.

    Attributes:
      stem: the question before its options.
      options: letter -> text, in order.
      tail: what follows the last option's line.
    """

    stem: str
    options: dict[str, str]
    tail: str


def find_choices(problem: str) -> Choices | None:
    """The question's lettered options, or None if it has no such list."""
    for style in _STYLES:
        marks = _marks(problem, style)
        if len(marks) >= 3:
            ends = [start for start, _ in marks[1:]] + [len(problem)]
            texts = [
                problem[begin:end] for (_, begin), end in zip(marks, ends, strict=True)
            ]
            start = marks[0][0]
            if _are_options(problem, start, texts):
                return _take_apart(problem[:start], texts)
    return None


def to_value(problem: str, answer: str) -> tuple[str, str] | None:
    """The question without its options, and its answer as a value.

    Returns:
      (problem, answer), or None if the question makes no sense without its options, or
      the answer is not a value.
    """
    choices = find_choices(problem)
    if choices is None:
        return None
    letter = _LETTER.fullmatch(answer.strip())
    if letter and letter[1] not in choices.options:
        return None
    value = choices.options[letter[1]] if letter else answer
    value = bare_answer(value)
    stem = choices.stem
    if len(choices.tail.split()) > 2 or len(stem) < 20 or _NEEDS_OPTIONS.search(stem):
        return None
    if not value or _NO_VALUE.search(value) or _LETTER.fullmatch(value):
        return None
    if value.count("{") != value.count("}"):
        return None
    if any("<image" in option for option in choices.options.values()):
        return None
    return stem, value


def is_choice_answer(answer: str) -> bool:
    """Whether the answer names options or statements rather than a value."""
    answer = answer.strip().strip("$")
    return any(form.fullmatch(answer) for form in (_BRACKETED, _LABELS))


def _marks(problem: str, style: str) -> list[tuple[int, int]]:
    """Where the marks of the letters begin and end, as far as they come in order."""
    marks: list[tuple[int, int]] = []
    start = 0
    for letter in _LETTERS_OF:
        match = re.compile(style.replace("L", letter, 1)).search(problem, start)
        if match is None:
            break
        marks.append(match.span())
        start = match.end()
    return marks


def _are_options(problem: str, start: int, texts: list[str]) -> bool:
    stem = problem[:start]
    if stem.count("[asy]") > stem.count("[/asy]"):
        return False
    if any(not text.strip(" \n$\\;,") for text in texts[:-1]):
        return False
    # Persons speaking and conditions are lettered too; the question comes after them.
    if ASKS.search(texts[-1]):
        return False
    longest = max(map(len, texts[:-1]))
    return longest < (400 if re.match(r"[\s$\\({]", problem[start:]) else 60)


def _take_apart(stem: str, texts: list[str]) -> Choices:
    longer = None
    while longer != stem:
        longer, stem = stem, _CLOSING.sub("", stem).rstrip()
        if stem.endswith("$") and stem.count("$") % 2:
            stem = stem[:-1].rstrip()
    last, _, tail = texts[-1].strip().partition("\n")
    options = map(_trimmed, [*texts[:-1], last])
    lettered = dict(zip(_LETTERS_OF, options, strict=False))
    return Choices(stem.strip(), lettered, tail.strip(" \n$}\\"))


def _trimmed(option: str) -> str:
    """An option without the separators around it, or half of a pair of dollars."""
    option = _EDGE.sub("", option)
    return _EDGE.sub("", option.strip("$")) if option.count("$") % 2 else option
