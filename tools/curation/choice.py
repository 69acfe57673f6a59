"""Multiple choice: finding the options, and turning the question into its value."""

import dataclasses
import re

from tools.curation.grammar import ASKS, STYLE, any_of
from tools.curation.repair import bare_answer

# (A) or \textbf{(A)} anywhere; A) and A. where an option can begin; a lone letter only
# at the start of a line.
_ANYWHERE = (
    rf"\$?\s*(?:{STYLE}\s*\{{?\s*|\{{\s*{STYLE}\s*)?(?<![A-Za-z0-9_\\])\(\s*(?:{STYLE}\s*\{{?)?L\s*\}}?"
    rf"\s*(?:\\\s*)?\)\s*(?:\\[ ,;]|\}}|:|\$(?=\s*\$))*"
)
_AT_BREAK = (
    r"(?:^|\n|\s{2,}|(?<=[:?.;,$])\s+|\\qquad\s*|\\quad\s*|\s(?=\*\*))[-*\s$]*"
    rf"(?:{STYLE}\s*\{{?)?\$?L\$?\s*[).:]\**\}}?(?=[\s$\\\d*(-])\**"
)
_AT_LINE = r"(?:^|\n)\s*\(?L\)?(?=\s+\S)"
_BOLD = r"(?:^|\s)[-\s]*\*\*\(?L\)?\*\*\s*[).:]?(?=\s)"
_STYLES = (_ANYWHERE, _AT_BREAK, _AT_LINE, _BOLD)
_ALPHABETS = ("ABCDEFGH", "abcdefgh")

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
_LETTERS = re.compile(
    rf"(?:{STYLE}\s*\{{)?\(?[A-H](?:\s*[,;&]\s*(?:\\?\s*and\s*)?|\s+and\s+)\(?[A-H]\b.*"
)
_LABELS = re.compile(
    r"(?:\$?\\?(?:text\{)?\s*[(]?(?:[①-⑩]|\((?:\d|i{1,3}|iv|v)\))[)]?"
    r"(?:\s|,|，|、|;|and|\\ |\\text\s*\{\s*and\s*\}|[}$])*)+"
)
_EDGE = re.compile(
    r"^(?:[\s~,;.:&}]|\\q?quad|\\\\|\\[ ,;])+|(?:[\s~,;&]|\\q?quad|\\\\|\\[ ,;])+$"
)
_CLOSING = re.compile(
    r"\s*(?:choices|options|answer choices|(?:the )?possible answers|choose (?:the|one)"
    r"[^.]*|\(please[^)]*\)|\\begin\{(?:array|align\*?|tabular)\}(?:\{[^}]*\})?"
    rf"|{STYLE}\s*\{{?|\\q?quad|\\\[|\()\s*$",
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
    for alphabet in _ALPHABETS:
        for style in _STYLES:
            marks = _marks(problem, style, alphabet)
            if len(marks) >= 3 and _are_options(problem, marks, alphabet):
                return _take_apart(problem, marks, alphabet)
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
    if any(
        _NO_VALUE.search(option) and "<image" in option
        for option in choices.options.values()
    ):
        return None
    return stem, value


def is_choice_answer(answer: str) -> bool:
    """Whether the answer names options or statements rather than a value."""
    answer = answer.strip()
    bracketed = re.fullmatch(
        rf"\$?(?:{STYLE}\s*\{{)?\s*\(\s*(?:{STYLE}\s*\{{)?[A-H]\}}?\s*\)\s*\}}?\$?",
        answer,
    )
    return bool(bracketed or _LETTERS.fullmatch(answer) or _LABELS.fullmatch(answer))


def is_letter(answer: str) -> bool:
    """Whether the answer is a single option letter, however it is wrapped."""
    return bool(_LETTER.fullmatch(answer.strip()))


def _marks(problem: str, style: str, alphabet: str) -> list[tuple[int, int]]:
    marks: list[tuple[int, int]] = []
    start = 0
    for letter in alphabet:
        match = re.compile(style.replace("L", letter, 1)).search(problem, start)
        if match is None:
            break
        marks.append((match.start(), match.end()))
        start = match.end()
    return marks


def _are_options(problem: str, marks: list[tuple[int, int]], alphabet: str) -> bool:
    if problem[: marks[0][0]].count("[asy]") > problem[: marks[0][0]].count("[/asy]"):
        return False
    ends = [start for start, _ in marks[1:]] + [len(problem)]
    pieces = [problem[end:stop] for (_, end), stop in zip(marks, ends, strict=True)]
    if any(not piece.strip(" \n$\\;,") for piece in pieces[:-1]):
        return False
    # Persons speaking and conditions are lettered too; the question comes after them.
    if ASKS.search(pieces[-1]):
        return False
    if alphabet.islower() or not re.match(r"[\s$\\({]", problem[marks[0][0] :]):
        stem = problem[: marks[0][0]].rstrip(" \n$")
        longest = max(map(len, pieces[:-1]))
        return longest < 60 and (alphabet.isupper() or stem.endswith(("?", ":")))
    return max(map(len, pieces[:-1])) < 400


def _take_apart(problem: str, marks: list[tuple[int, int]], alphabet: str) -> Choices:
    stem = problem[: marks[0][0]]
    while True:
        shorter = _CLOSING.sub("", stem).rstrip()
        if shorter.endswith("$") and shorter.count("$") % 2:
            shorter = shorter[:-1].rstrip()
        if shorter == stem:
            break
        stem = shorter
    ends = [start for start, _ in marks[1:]] + [len(problem)]
    texts = [problem[end:stop] for (_, end), stop in zip(marks, ends, strict=True)]
    last, _, tail = texts[-1].strip().partition("\n")
    texts[-1] = last
    options = {
        letter.upper(): _trimmed(text)
        for letter, text in zip(alphabet, texts, strict=False)
    }
    return Choices(stem.strip(), options, tail.strip(" \n$}\\"))


def _trimmed(option: str) -> str:
    """An option without the separators around it, or half of a pair of dollars."""
    option = _EDGE.sub("", option)
    if option.count("$") % 2:
        option = _EDGE.sub("", option.strip("$"))
    return option
