"""From text to an answer: what stands around and between expressions.

Beside expressions an answer may be one of these nodes (children are nodes again):

  ("list", a, b, ...)    answers in any order        ("set", a, ...)   a set in braces
  ("tuple", a, b, ...)   ordered; of two, perhaps an open interval
  ("interval", low, high, low_closed, high_closed)
  ("cup", a, b)  ("cap", a, b)  ("minus", a, b)   ("numbers", "Z")
  ("rel", "=" or "<" ..., a, b)                    ("chain", rel, rel, ...)
  ("unit", a, unit, scale)                         ("ratio", a, b, ...)
  ("matrix", width, a, ...)                        ("det", width, a, ...)
  ("based", digits, base)                          ("cases", row, ...)  ("row", a, ...)
  ("assign", rel, rel, ...)   one of several joint solutions "p = 5, q = 2"
  ("mod", rel, modulus)                            a congruence
  ("word", text)                                   ("choice", letter, a)
"""

import dataclasses
import re

from rl.verifier import tree
from rl.verifier.cursor import MAX_DEPTH
from rl.verifier.normalise import MAX_ANSWER, clean, squeezed
from rl.verifier.statements import AnswerParser
from rl.verifier.tokens import tokenize
from rl.verifier.tree import Node, Unparsable
from rl.verifier.units import parse_unit

# "5 m" is five metres or five times m; a letter set apart may be either.
_NUMBER_AND_UNIT = re.compile(
    r"(-?\d{1,9}(?:,\d{3})*(?:\.\d{1,9})?) ([a-zA-Z][a-zA-Z/^0-9 ]{0,30})"
)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}")
_CHOICE = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*\(?([A-Z])(?:\)\s*\}?|[.:]\s)"
    r"[.:]?(?:\\[\s,;]|~|\\q?quad|\s)*\}?(.+)",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was understood.

    Attributes:
      text: its words without dress, for comparison where no structure is known.
      node: what it means, or None where the grammar does not know it.
      other: a second reading, where the text allows one ("1,234"), or None.
      parameters: names that it declares to be any integer.
      reason: why node is None.
    """

    text: str
    node: Node | None
    other: Node | None = None
    parameters: frozenset[str] = frozenset()
    reason: str = ""


def parse_answer(raw: str) -> Answer:
    """Reads an answer; never raises for any text.

    Args:
      raw: the content of a box, or a gold answer.

    Returns:
      The answer; its node is None where the text exceeds a cap or is not understood.
    """
    raw = raw.strip()
    if len(raw) > MAX_ANSWER:
        reason = f"is longer than {MAX_ANSWER} characters"
        return Answer(raw, None, reason=reason)
    text = clean(raw)
    words = squeezed(text)
    if not words:
        return Answer(words, None, reason="is empty")
    try:
        parser = _read(text, group_commas=True)
        node = parser.result
        if tree.depth(node) > MAX_DEPTH:
            raise Unparsable(f"is nested deeper than {MAX_DEPTH}")
    except (Unparsable, RecursionError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, Unparsable) else type(error).__name__
        return Answer(words, None, reason=reason)
    other = None
    if match := _NUMBER_AND_UNIT.fullmatch(text):
        reading = parse_unit(match[2])
        if reading is not None and isinstance(reading.unit, str):
            value = _read(match[1], group_commas=True).result
            other = ("unit", value, reading.unit, reading.scale)
    elif (
        "," in text
        and ",0" not in text
        and node[0] not in ("word", "tuple", "interval")
    ):
        other = _second_reading(text, node)
    return Answer(words, node, other, frozenset(parser.parameters))


def _second_reading(text: str, node: Node) -> Node | None:
    """The list that "1,234" may also be."""
    try:
        other = _read(text, group_commas=False).result
    except (Unparsable, RecursionError, ValueError, OverflowError):
        return None
    return other if other != node else None


def _read(text: str, group_commas: bool) -> "AnswerParser":
    if match := _CHOICE.fullmatch(text):
        letter, rest = match.groups()
        rest = rest.strip()
        if rest.endswith("}") and rest.count("}") > rest.count("{"):
            rest = rest[:-1].strip()
        if rest and rest[0] not in "+-*/^=<>_,'!)}]\\" or rest.startswith("\\frac"):
            parser = AnswerParser(tokenize(rest, group_commas=group_commas))
            parser.result = ("choice", letter, parser.answer())
            return parser
    parser = AnswerParser(tokenize(text, group_commas=group_commas))
    if _DATE.fullmatch(text):
        parser.result = ("word", text)
    else:
        parser.result = parser.answer()
    return parser
