"""Parses units of measure and counting words that may follow a number."""

import collections
import functools
import itertools
import re
from fractions import Fraction
from typing import NamedTuple

from . import unit_table as table

Unit = str | frozenset[str]
"""Dimensions, such as "length^1 time^-1" or "mass^1 of rice", or the words of a unit.

Words are marked by their place: "red-" is before the noun, "of sugar" is after it.
"""

_WORD = re.compile(r"[A-Za-z$€£¥₹¢°']+|\d+|[/^*-]")
_LEADING = re.compile(r"(?:\s*(?:[A-Za-z¢€£¥₹]+|[/*-]|\^\s*-?[1-3](?!\d)))*")
# In "ms^-1", "ms" means metre and second, not millisecond.
_RUN_TOGETHER = re.compile(r"\b(k?m(?=[sh])|cm(?=s)|N(?=m))(?=[shm]\s*\^\s*\{?\s*-)")
_MARK = re.compile(r"((?:of )?)(.*?)(-?)\Z")
_CURRENCY_OF_A_COUNTRY = re.compile(r"(?i)\bu\.?s\.?(?=\s*(?:\\?\$|dollar))")


def _singular(word: str) -> str:
    if word in table.IRREGULAR:
        return table.IRREGULAR[word]
    for ending in ("ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            base = word[: -len(ending)] + ("y" if ending == "ies" else "")
            hissing = base.endswith(("s", "x", "ch", "sh"))
            if ending != "es" or hissing or base in table.UNITS:
                return base
    return word


@functools.lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Returns a stem that most words share with their plurals: "cooky" for cookies."""
    word = word.rpartition("-")[2]
    word = table.IRREGULAR.get(word, word)
    if word.endswith("s") and is_plural(word):
        word = word[:-1]
    return re.sub("i?e$|i$", lambda end: "y" if "i" in end[0] else "", word)


def stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in re.findall("[a-z]+", text.lower()))


_NEUTRAL_STEMS = stems(table.NEUTRAL)
# Neutral nouns for single things: where socks are counted, "pairs" is wrong.
_ONE_BY_ONE = _NEUTRAL_STEMS - stems(
    "pair set subset tuple triple triplet group team row column per"
)


def _lookup(word: str) -> table.Entry | None:
    if len(word) == 1 and word.isalpha():
        return table.UNITS.get(word)
    lower = word.lower()
    if (entry := table.UNITS.get(word) or table.ANY_CASE.get(lower)) is not None:
        return entry
    one = _singular(lower)
    # Names have a plural, but few symbols do: "has" is not a hectare.
    return table.ANY_CASE.get(one) if len(one) > 2 or one in table.IN_PLURAL else None


class Reading(NamedTuple):
    """Represents the words after a number: a unit, its size, a multiplier (million)."""

    unit: Unit | None  # None if the words do not name one, as in "in total"
    scale: Fraction = Fraction(1)
    multiplier: Fraction = Fraction(1)


def parse_unit(text: str) -> Reading | None:
    """Parses the words after a number, such as "miles per hour" or "dogs".

    Words such as "million" become a factor. Returns None for other words that change
    the number, and for unknown notation.
    """
    words = _with_per(_words(text))
    lower_words = [word.lower() for word in words]
    if lower_words != ["times"] and any(map(_changes_a_number, lower_words)):
        return None
    if words and words[0] in table.CURRENCY:
        # "$5 dollars" is a price, not dollars squared; "$10 cents" is ambiguous.
        words[1:] = [w for w in words[1:] if _lookup(w) != _lookup(words[0])]
        others = [entry for w in words[1:] if (entry := _lookup(w)) is not None]
        if any("money" in exponents for exponents, _ in others):
            return None
    if (known := _known(words)) is not None:
        return known
    multiplier = Fraction(1)
    rest = []
    for word in words:
        lower = word.lower()
        scale = table.SCALES.get(_singular(lower)) or table.SCALES.get(lower)
        if scale is None:
            rest.append(word)
        else:
            multiplier *= scale
    while rest and rest[-1].lower() in table.ATTRIBUTES:
        rest.pop()
    if rest[-1:] == ["in"] and (len(rest) == 1 or _lookup(rest[-2])):
        rest.pop()  # a preposition, not inches: "hours in"
    if (known := _known(rest)) is not None:
        return known._replace(multiplier=multiplier)
    reading = _things(rest)
    return None if reading is None else reading._replace(multiplier=multiplier)


def is_unit(text: str) -> bool:
    """Returns whether a text is only a known unit: "g/cm^3", not "m - s"."""
    if re.search(r"[^a-zA-Z\d/^{}*. -]|(?<= )- |-(?! ?\d|[a-z]{2})", text):
        return False
    reading = _known(_words(text))
    return reading is not None and isinstance(reading.unit, str)


def leading_units(text: str) -> tuple[Reading, ...]:
    """Returns the known unit at the start of a text; for a price, also its currency.

    The result is empty if the unit continues with unknown words ("miles per lap"), or
    may mean something else ("second place", "dollar bills").
    """
    leading = _LEADING.match(text)
    words = _words(leading[0] if leading else "")
    for at, word in enumerate(words[1:], 1):
        # "in" is a preposition in "miles in a day", but a unit in "lb per in".
        if word.lower() == "in" and words[at - 1].isalpha() and _lookup(words[at - 1]):
            del words[at:]
            break
    for end in range(len(words), 0, -1):
        reading = _known(words[:end])
        if reading is None or not isinstance(reading.unit, str):
            continue
        rest = [word.lower() for word in words[end : end + 2]]
        goes_on = rest[:1] and (
            rest[0] in table.POWERS or rest[0] in ("per", "/", "^", "*")
        )
        rate = rest[:1] in (["a"], ["an"]) and _known(rest[1:]) is not None
        lower = words[0].lower()
        name = len(words[0]) > 3 or lower in ("day", "ton")
        singular = name and lower == _singular(lower)
        no_measure = singular or (words[0] == "in" and rest)
        if goes_on or rate or (end == 1 and no_measure):
            return ()
        first = _known(words[:1])
        if first is not None and first.unit == "money^1" != reading.unit:
            return (reading, first)  # the unit of a price and its currency
        return (reading,)
    return ()


def _words(text: str) -> list[str]:
    text = re.sub(r"(?i)\b([ap])\.m\b\.?", r"\1m", text)
    text = _CURRENCY_OF_A_COUNTRY.sub("", text)
    text = _RUN_TOGETHER.sub(r"\1 ", text)
    found = _WORD.findall(text.replace("sq.", "square").replace("cu.", "cubic"))
    words: list[str] = []
    for word in found:
        if words[-1:] == ["-"] and len(words) > 1 and _is_compound(words[-2], word):
            words[-2:] = [f"{words[-2]}-{word}"]
        else:
            words.append(word)
    return words


def _is_compound(first: str, second: str) -> bool:
    if first.lower() == "non":
        return True
    single = len(first) == 1 and _lookup(first) is None
    if not (single or first.isdigit() or _is_number_word(first)):
        return False
    changes = second.lower() in table.CHANGING or _is_number_word(second)
    return second.isalpha() and not changes


def _is_number_word(word: str) -> bool:
    return table.NUMBER_WORD.fullmatch(word.lower()) is not None


def _changes_a_number(word: str) -> bool:
    counts = _is_number_word(word) and _singular(word) not in table.SCALES
    return counts or word in table.CHANGING


def calculates(label: str) -> bool:
    """Returns whether words describe an operation or denial: "twice the answer"."""
    words = re.findall("[a-z'-]+", label.lower())
    if not table.CALCULATING.isdisjoint(words):
        return True
    of = words.index("of") if "of" in words else 0
    head = words[of - 1].rpartition("-")[2] if of else ""
    if head in table.CALCULATING_OF or _is_number_word(head):
        return True
    return any(
        (_is_number_word(word) and then in ("times", "more", "less", "fewer"))
        or (word in table.CALCULATING_BY and then in ("by", "to"))
        or (word in table.CALCULATING_OF and then == "root")
        for word, then in itertools.pairwise(words)
    )


def _with_per(words: list[str]) -> list[str]:
    """Writes "per" for words with this meaning: pages a day, pens in each box."""
    found: list[str] = []
    for word, then in zip(words, [*words[1:], ""], strict=True):
        behind = found and found[-1].lower() in ("in", "on", "for")
        if word.lower() in ("each", "every") and then:
            found[-1:] = ["per"] if behind else [*found[-1:], "per"]
        elif word.lower() in ("a", "an") and found and not behind and _lookup(then):
            found.append("per")
        else:
            found.append(word)
    return found


def _things(words: list[str]) -> Reading | None:
    """Parses words for things that are counted, or a known unit "of" something."""
    lower = [word.lower() for word in words]
    at = next((i for i, word in enumerate(lower) if word in table.PLACES), len(words))
    known = _known(words[:at])
    silent = table.FILLER | {"-"}
    nouns = [word for word in lower[:at] if word not in silent]
    behind = [word for word in lower[at:] if word not in silent | table.PLACES]
    if lower[at : at + 1] == ["to"] or not all(map(_is_plain, nouns + behind)):
        return None
    if {"per", "/", "square", "sq", "squared", "cubic", "cubed"}.intersection(lower):
        return None
    if known is not None and isinstance(known.unit, str):
        # "kg of rice" converts as kilograms do.
        unit = known.unit + "".join(f" of {word}" for word in sorted(behind))
        return known._replace(unit=unit)
    if any(_known([word]) is not None for word in words[:at]):
        return None  # "dollars profit" is not only a unit
    if len(nouns) > 1 and nouns[-1].endswith("ed") and is_plural(nouns[-2]):
        behind.append(nouns.pop())
    marks = {f"{noun}-" for noun in nouns[:-1]} | set(nouns[-1:])
    return Reading(frozenset(marks | {f"of {word}" for word in behind}) or None)


def _is_plain(word: str) -> bool:
    letters = word.rpartition("-")[2].replace("'", "")
    return len(word) > 1 and letters.isalpha() and word not in ("squared", "cubed")


def is_plural(word: str) -> bool:
    if word in table.IRREGULAR:
        return True
    endings = ("ss", "us", "is", "ths", "wards", "squareds", "cubeds")
    return word.endswith("s") and not word.endswith(endings)


def same_unit(one: Unit, other: Unit) -> bool:
    """Returns whether two units are equal, except for words in only one: red apples."""
    if isinstance(one, str) and isinstance(other, str):
        ours, theirs = one.split(" of "), other.split(" of ")
        return ours[0] == theirs[0] and _nested({*ours[1:]}, {*theirs[1:]})
    if isinstance(one, str) or isinstance(other, str):
        return False
    return _nested({*map(_stemmed, one)}, {*map(_stemmed, other)})


def _stemmed(mark: str) -> str:
    return _MARK.sub(lambda m: m[1] + stem(m[2]) + m[3], mark, count=1)


def _nested(one: set[str], other: set[str]) -> bool:
    return one <= other or other <= one


def may_be_missing(unit: Unit) -> bool:
    """Returns whether an answer may omit a unit: a measure, plural or neutral noun."""
    if isinstance(unit, str):
        return True
    return _names_things(unit) and all(
        is_plural(noun) or stem(noun) in _NEUTRAL_STEMS and noun not in table.NO_NOUN
        for noun in _heads(unit)
    )


def is_named(unit: Unit, named_by: frozenset[str]) -> bool:
    """Returns whether a text with the stems `named_by` names the things in a unit.

    Words that may be an operation ("halved") count as unnamed.
    """
    if isinstance(unit, str):
        return {*map(stem, unit.split(" of ")[1:])} <= named_by | _NEUTRAL_STEMS
    if any(noun.endswith("ed") or noun in table.NO_NOUN for noun in _heads(unit)):
        return False
    words = {stem(mark.removeprefix("of ").rstrip("-")) for mark in unit}
    return _names_things(unit) and words <= named_by | _NEUTRAL_STEMS


def answers(
    unit: frozenset[str], nouns: frozenset[str], others: frozenset[str]
) -> bool:
    """Returns whether a unit counts the stems `nouns` that the problem asks for.

    A unit without a plural may also use `others`, the stems of words before the nouns.
    """
    heads = _heads(unit)
    named = [mark.rstrip("-") for mark in unit if mark.endswith("-")] + heads
    plurals = frozenset(map(stem, filter(is_plural, named)))
    if plurals:
        return plurals <= nouns | _ONE_BY_ONE
    return frozenset(map(stem, heads)) <= nouns | others | _ONE_BY_ONE


def _names_things(unit: frozenset[str]) -> bool:
    return any(not mark.startswith("of ") for mark in unit)


def _heads(unit: frozenset[str]) -> list[str]:
    return [m for m in unit if not m.startswith("of ") and not m.endswith("-")]


def _known(words: list[str]) -> Reading | None:
    if words and words[-1] in ("/", "per", "a", "an", "*", "-"):
        return None
    factors: list[tuple[table.Entry, int]] = []  # units and their exponents
    sign, pending = 1, 1
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        raised = table.POWERS.get(word.lower())
        if raised is not None and not word.lower().endswith("d"):
            pending = raised
        elif word in ("/", "per") or (word in ("an", "a") and factors):
            sign = -1
        elif raised is not None or word == "^" or word.isdigit():
            if word == "^":
                negative = words[position : position + 1] == ["-"]
                digits = words[position + negative : position + negative + 1]
                position += 1 + negative
                if digits not in (["1"], ["2"], ["3"]):
                    return None
                raised = -int(digits[0]) if negative else int(digits[0])
            elif raised is None and word in ("1", "2", "3"):
                raised = int(word)
            if not factors or raised is None:
                return None
            factors[-1] = factors[-1][0], factors[-1][1] * raised
        elif word in ("*", "-") and factors:
            continue
        elif (entry := _lookup(word)) is not None:
            if "unit" in entry[0] and not factors:
                # "square units" and "units" do not name a unit.
                power = words[position:]
                return Reading(None) if power in ([], ["^", "2"], ["^", "3"]) else None
            factors.append((entry, sign * pending))
            pending = 1
        else:
            return None
    exponents = collections.Counter[str]()
    scale = Fraction(1)
    for (unit, size), times in factors:
        scale *= size**times
        for name, exponent in unit.items():
            exponents[name] += exponent * times
    dimensions = " ".join(f"{d}^{e}" for d, e in sorted(exponents.items()) if e)
    return Reading(dimensions, scale) if dimensions else None
