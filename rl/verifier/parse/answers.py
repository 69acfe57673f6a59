"""Parses the text of an answer to a tree, or to two if it has two meanings."""

import dataclasses
import re
from typing import Any, NamedTuple

from . import tree as t
from .cursor import MAX_DEPTH
from .normalize import MAX_ANSWER, TEXT_COMMAND, clean, squeezed
from .statements import Parser
from .tokens import tokenize
from .units import parse_unit

# Matches "5 m", which is five metres or five times m. A letter after a space, or a word
# in brackets, may be a unit or a factor.
_NUMBER_AND_UNIT = re.compile(
    r"(-?\d{1,9}(?:,\d{3})*(?:\.\d{1,9})?) \(?([a-zA-Z][a-zA-Z/^0-9 ]{0,30})\)?"
)
# Match the letter of an option before or after its value, and the gap between them.
_DRESS = rf"(?:(?:{TEXT_COMMAND}|\\mathbf)\s*\{{\s*)?"
_GAP = r"(?:\\[\s,;]|~|\\q?quad|\s)"
_CHOICE = re.compile(
    rf"{_DRESS}\(?\s*{_DRESS}([A-Z])(?:\s*\}}?\)\s*\}}?|[.:]\s)"
    rf"[.:]?{_GAP}*+\}}?(?!.*(?<![A-Za-z])[A-Z][.:]\s)(.*)",
    re.DOTALL,
)
_LETTER = re.compile(r"[A-Z](?:\s*\}?\)|[.:]\s)")
_CHOICE_BEHIND = re.compile(rf"{_DRESS}\(([A-Z])\)\s*\}}?\Z")
_BETWEEN = re.compile(rf"(?:{_GAP}|\\(?:\w*arrow|implies|to))++")
_ENDS_WITH_NAME = re.compile(r".*(?<![A-Za-z\\])[A-Za-z]", re.DOTALL)
# Match (C)-5 and (C) - 5, and how a formula that begins with (C) may continue.
_DIFFERENCE = re.compile(r"\([A-Z]\)(?:[-+]|\s*[-+]\s)")
_GOES_ON = re.compile(r"[-+*/^=<>_,'!)}\]]|\\(?!frac|text|begin|\{)")
_GROUPED = re.compile(r"\d,\d{3}(?!\d)")
# Match the text around the letters of options, and the separators between options.
_AROUND_OPTIONS = re.compile(
    rf"\\[,;:!\s{{}}]|{TEXT_COMMAND}|\\mathbf|\(([A-Z])\)|\b(?:and|[Oo]ptions?)\b"
    r"|[\s{}~,;&]"
)
_ONLY_LETTERS = re.compile(r"[^A-Z0-9]*[A-Z][^0-9]*")
_OPTIONS_APART = re.compile(r"(?<!\\)[,;&]|\band\b|\)\s*\(")


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Represents a parsed answer; the trees are None if it cannot be parsed."""

    text: str  # cleaned (raw if too long); compared if a tree is missing
    written: t.Node | None = None  # as written
    node: t.Node | None = None  # the same tree after `tree.fold`
    other: t.Node | None = None  # `node` of a second reading, such as "1,234"
    other_written: t.Node | None = None
    reason: str = ""  # why the trees are missing

    def to_sympy(self) -> Any:
        """Returns the answer as a sympy object; imports sympy.

        Raises:
          ValueError: if the answer was not parsed, or sympy has no such object.
          TypeError or NotImplementedError: if sympy rejects a part, as in i < 2.
        """
        from .to_sympy import to_sympy

        if self.node is None:
            raise ValueError(f"{self.text[:40]!r} {self.reason}")
        return to_sympy(self.node)


def parse_answer(raw: str) -> Answer:
    """Parses the content of a box, or a gold. If this fails, `node` is None."""
    raw = raw.strip(" \n")  # a tab may be the start of \text, see `clean`
    if len(raw) > MAX_ANSWER:
        return Answer(raw, reason=f"is longer than {MAX_ANSWER} characters")
    text = clean(raw)
    words = squeezed(text)
    if not words:
        return Answer(words, reason="is empty")
    try:
        written = _read(text, group_commas=True)
        if len(t.walk(written)) > MAX_DEPTH and t.depth(written) > MAX_DEPTH:
            raise t.Unparsable(f"is nested deeper than {MAX_DEPTH}")
        node = t.fold(written)
        second = _second_meaning(text, node)
        other = None if second is None else t.fold(second)
    except (t.Unparsable, RecursionError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, t.Unparsable) else type(error).__name__
        return Answer(words, reason=reason)
    if other == node:
        second = other = None
    return Answer(words, written, node, other, second)


def _second_meaning(text: str, node: t.Node) -> t.Node | None:
    """Parses "(C) -5" or "BC" as options, "5 m" with a unit, "1,234" as a list."""
    try:
        if (options := _options(text)) is not None:
            return options
        if not isinstance(node, t.Choice) and (option := option_in(text)):
            value = _read(option.value, group_commas=True)
            return t.Choice(option.letter, value)
        if match := _NUMBER_AND_UNIT.fullmatch(text):
            reading = parse_unit(match[2])
            if reading is None or not isinstance(reading.unit, str):
                return None
            in_words = rf"{match[1]} \text{{{match[2]}}}"
            return _read(in_words, group_commas=True)
        if ",0" not in text and _GROUPED.search(text):
            if not isinstance(node, t.Word | t.Tuple | t.Interval):
                return _read(text, group_commas=False)
    except (t.Unparsable, RecursionError, ValueError, OverflowError):
        pass
    return None


def _read(text: str, group_commas: bool) -> t.Node:
    if (options := _options(text)) is not None and _OPTIONS_APART.search(text):
        return options
    letter = None
    if option := option_in(text):
        if not option.value:
            text = option.letter
        elif option.certain:
            letter, text = option.letter, option.value
    node = Parser(tokenize(text, group_commas=group_commas)).answer()
    return node if letter is None else t.Choice(letter, node)


class Option(NamedTuple):
    """Represents an option; `certain` if its letter cannot be a variable."""

    letter: str
    value: str
    certain: bool


def option_in(text: str) -> Option | None:
    r"""Parses an option such as `(C) -5` or `-5\ \textbf{(C)}`, if the text is one."""
    if not _LETTER.search(text) or _DIFFERENCE.match(text):
        return None
    if match := _CHOICE.fullmatch(text):
        value = match[2].strip()
        if value.endswith("}") and value.count("}") > value.count("{"):
            value = value[:-1].strip()
        return Option(match[1], value, text[0] != "(" or not _GOES_ON.match(value))
    if match := _CHOICE_BEHIND.search(text):
        before = text[: match.start()]
        *_, run = "", *(m[0] for m in _BETWEEN.finditer(before))
        between = run if before.endswith(run) else ""
        value = before.removesuffix(between).strip()
        certain = match[0][0] != "(" or re.search("[a-z]", between) is not None
        if value and (certain or between and not _ENDS_WITH_NAME.fullmatch(value)):
            return Option(match[1], value, certain)
    return None


def _options(text: str) -> t.Braces | None:
    if not _ONLY_LETTERS.fullmatch(text):
        return None
    words = _AROUND_OPTIONS.sub(lambda match: f" {match[1] or ''} ", text).split()
    if len(words) == 1 and [*words[0]] == sorted({*words[0]}):
        words = [*words[0]]
    if len(words) < 2 or any(len(word) > 1 or not word.isupper() for word in words):
        return None
    return t.Braces(tuple(map(t.Sym, words)))
