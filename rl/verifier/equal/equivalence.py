"""Defines the public functions that compare answers without a problem text."""

import dataclasses
import re
from fractions import Fraction

from ..parse.answers import Answer, parse_answer
from ..parse.budget import Open
from ..parse.normalize import MAX_ANSWER, clean, squeezed
from .compare import same_answer
from .prover import Prover

_PLAIN = re.compile(
    r"(-?)(?:(\d{1,300})(?:\.(\d{1,300}))?|\\[dt]?frac\{(\d{1,300})\}\{(\d{1,300})\})"
)


def _plain_value(text: str) -> Fraction | None:
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    sign, whole, places, top, bottom = match.groups()
    if whole is not None:
        value = Fraction(int(whole + (places or "")), 10 ** len(places or ""))
    elif int(bottom):
        value = Fraction(int(top), int(bottom))
    else:
        return None
    return -value if sign else value


def is_equivalent(predicted: str, gold: str) -> bool:
    """Returns whether two answers are shown to be equal; False if undecided."""
    if predicted == gold:
        return True
    left = _plain_value(predicted)
    if left is not None and len(predicted) < 14:
        right = _plain_value(gold)
        if right is not None and len(gold) < 14:
            return left == right
    return _same(parse_answer(predicted), parse_answer(gold))


def _same(left: Answer, right: Answer) -> bool:
    try:
        return same_answer(left, right, Prover())
    except (Open, RecursionError):
        return False


def self_check(answer: str) -> str | None:
    """Returns what is wrong with a gold, such as "has an unclosed brace", or None.

    If a gold cannot be parsed, answers are compared with it only as text.
    """
    parsed = parse_answer(answer)
    if parsed.node is None:
        return parsed.reason
    bare = dataclasses.replace(parsed, text="")
    return None if _same(parsed, bare) else "does not equal itself"


def canonical_key(answer: str) -> str:
    """Returns a key that is cheap to compute.

    Stripped answers up to MAX_ANSWER characters are equivalent if their keys are equal.
    """
    value = _plain_value(answer)
    if value is not None:
        return f"={value}"
    return squeezed(clean(answer[:MAX_ANSWER])) + answer[MAX_ANSWER:]
