"""Equality of two answers."""

import re
from fractions import Fraction

_NUMBER = re.compile(r"-?\d{1,400}(?:\.\d{1,400})?")
_FRACTION = re.compile(r"(-?)\\[dtc]?frac\{?(-?\d{1,400})\}?\{?(\d{1,400})\}?")
_SLASH = re.compile(r"(-?\d{1,400})/(\d{1,400})")


def _normalise(text: str) -> str:
    text = text.strip().strip("$").strip().rstrip(".")
    for old in ("\\left", "\\right", "\\!", "\\,", "\\%", "^\\circ", "\\$", " "):
        text = text.replace(old, "")
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)


def _value(text: str) -> Fraction | None:
    if match := _NUMBER.fullmatch(text):
        return Fraction(match.group())
    if match := _FRACTION.fullmatch(text):
        sign, top, bottom = match.groups()
        if int(bottom):
            value = Fraction(int(top), int(bottom))
            return -value if sign else value
    if match := _SLASH.fullmatch(text):
        if int(match.group(2)):
            return Fraction(int(match.group(1)), int(match.group(2)))
    return None


def is_equivalent(predicted: str, gold: str) -> bool:
    """Whether two answers are the same."""
    left, right = _normalise(predicted), _normalise(gold)
    if left == right:
        return True
    values = _value(left), _value(right)
    return None not in values and values[0] == values[1]


def self_check(answer: str) -> str | None:
    """Why an answer cannot serve as a gold, or None where it can."""
    return None if _normalise(answer) else "is empty"


def canonical_key(answer: str) -> str:
    """Answers with the same key are equivalent."""
    text = _normalise(answer)
    value = _value(text)
    return text if value is None else f"={value}"
