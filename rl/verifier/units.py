"""Units of measure and counting words that may follow a number.

A missing unit is forgiven, a different one is not. Units of one dimension convert;
words that are no known unit ("17 dogs") match a missing unit, and words with which they
share a stem.
"""

import re
from fractions import Fraction
from typing import NamedTuple

Unit = str | frozenset[str]
"""Known: its dimensions, like "length^1 time^-1". Unknown: the set of its words."""

_LENGTH = {
    "m meter metre": 1, "cm centimeter centimetre": Fraction(1, 100),
    "mm millimeter millimetre": Fraction(1, 1000), "km kilometer kilometre": 1000,
    "nm nanometer": Fraction(1, 10**9), "in inch inches": Fraction(254, 10000),
    "ft foot feet": Fraction(3048, 10000), "yd yard": Fraction(9144, 10000),
    "mi mile": Fraction(1609344, 1000), "dm decimeter": Fraction(1, 10),
}  # fmt: skip
_TIME = {
    "s sec second": 1, "ms millisecond": Fraction(1, 1000), "min minute": 60,
    "h hr hour": 3600, "day": 86400, "week wk": 604800,
}  # fmt: skip
_MASS = {
    "g gram": 1, "kg kilogram": 1000, "mg milligram": Fraction(1, 1000),
    "lb pound": Fraction(45359237, 100000), "oz ounce": Fraction(45359237, 1600000),
    "ton tonne": 10**6,
}  # fmt: skip
_VOLUME = {"l liter litre": 1, "ml milliliter": Fraction(1, 1000)}
_OTHER = {
    "dollar": "$ dollar buck usd", "euro": "€ euro eur", "pound sterling": "£ gbp",
    "yen": "¥ yen", "rupee": "₹ rupee rs", "yuan": "yuan rmb", "am": "am", "pm": "pm",
    "month": "month", "year": "year yr", "newton": "n newton", "joule": "j joule",
    "watt": "w watt", "volt": "v volt", "ampere": "a ampere amp", "ohm": "ohm",
    "hertz": "hz hertz", "kelvin": "k kelvin", "celsius": "c celsius",
    "fahrenheit": "f fahrenheit", "pascal": "pa pascal", "mole": "mol mole",
    "radian": "rad radian", "unit": "unit", "mph": "mph", "gallon": "gal gallon",
    "acre": "acre", "angstrom": "angstrom",
}  # fmt: skip


def _table() -> dict[str, tuple[str, Fraction]]:
    table: dict[str, tuple[str, Fraction]] = {}
    scaled = {"length": _LENGTH, "time": _TIME, "mass": _MASS, "volume": _VOLUME}
    for dimension, names in scaled.items():
        for words, scale in names.items():
            for word in words.split():
                table[word] = (dimension, Fraction(scale))
    for dimension, words in _OTHER.items():
        for word in words.split():
            table[word] = (dimension, Fraction(1))
    table["cent"] = table["¢"] = ("dollar", Fraction(1, 100))
    return table


_UNITS = _table()
SHORT = frozenset(
    "cm mm km dm ft yd mi min hr kg lb oz sq ml mph hz mol rad pm am usd"
    " pct cents cent dollars dollar yen euros euro meters metres sec".split()
)
"""Plain letter runs that are read as a unit after a number."""
SCALES = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12, "dozen": 12, "half": Fraction(1, 2), "halves": Fraction(1, 2),
}  # fmt: skip
# A number beside one of these is not simply that number.
_DENYING = frozenset(
    "not no never isn't wrong incorrect false maybe perhaps probably possibly either"
    " neither nor unless except plus minus times over under less more than least most"
    " up below above approx unknown cannot can't undefined impossible different"
    " remainder r mod root factorial tenth tenths hundredth hundredths thousandth"
    " thousandths third thirds quarter quarters fourth fourths fifth fifths sixth"
    " sixths eighth eighths".split()
)
_POWERS = frozenset("square squared cubic cubed sq".split())
_FILLER = frozenset(
    "of the a an in is are total units unit each all and exactly value values".split()
)
_WORD = re.compile(r"[a-z$€£¥₹¢°']+|\d+|[/^*-]")


def _stem(word: str) -> str:
    for ending in ("ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            base = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if ending != "es" or base in _UNITS or base.endswith(("s", "x", "ch")):
                return base
    return word


def _lookup(word: str) -> tuple[str, Fraction] | None:
    return _UNITS.get(word) or _UNITS.get(_stem(word))


class Reading(NamedTuple):
    """What the words after a number say.

    Attributes:
      unit: None where they name none, like "in total".
      scale: the unit's size in base units of its dimension.
      multiplier: of the number itself, like 10**6 for "million".
    """

    unit: Unit | None
    scale: Fraction = Fraction(1)
    multiplier: Fraction = Fraction(1)


def parse_unit(text: str) -> Reading | None:
    """Reads the words after a number.

    Args:
      text: for instance "cm^2", "miles per hour", "square feet", "dogs".

    Returns:
      The reading, or None where the words change what the number means.
    """
    text = text.lower().replace("a.m.", "am").replace("p.m.", "pm")
    text = text.replace("a.m", "am").replace("p.m", "pm")
    words = _WORD.findall(text.replace("sq.", "square").replace("cu.", "cubic"))
    if any(word in _DENYING for word in words):
        return None
    if (known := _known(words)) is not None:
        return known
    scale = Fraction(1)
    for word in words:
        scale *= SCALES.get(word, 1)
    if _POWERS.intersection(words):
        return None
    rest = [w for w in words if w.isalpha() and w not in _FILLER and w not in SCALES]
    if not rest:
        return Reading(None, multiplier=scale)
    if scale != 1 and (known := _known(rest)) is not None:
        return known._replace(multiplier=scale)
    if any(word.isdigit() for word in words):
        return None
    return Reading(frozenset(_stem(word) for word in rest), multiplier=scale)


def _known(words: list[str]) -> Reading | None:
    exponents: dict[str, int] = {}
    scale = Fraction(1)
    sign, pending, last = 1, 1, None
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word in ("square", "sq", "squared", "cubic", "cubed"):
            power = 2 if word.startswith("sq") else 3
            if word.endswith("d"):
                if last is None:
                    return None
                exponents[last[0]] += last[2] * (power - 1)
                scale *= last[1] ** (last[2] * (power - 1))
            else:
                pending = power
        elif word in ("/", "per"):
            sign = -1
        elif word == "^" or word.isdigit():
            negative = word == "^" and words[position : position + 1] == ["-"]
            position += negative
            digits = word if word.isdigit() else "".join(words[position : position + 1])
            position += word == "^"
            if last is None or digits not in ("1", "2", "3"):
                return None
            change = last[2] * ((-1 if negative else 1) * int(digits) - 1)
            exponents[last[0]] += change
            scale *= last[1] ** change
        elif word == "*":
            continue
        elif (entry := _lookup(word)) is not None:
            if entry[0] == "unit" and not exponents:
                # "square units", "units": no unit is named at all.
                return Reading(None) if position == len(words) else None
            last = (entry[0], entry[1], sign * pending)
            exponents[last[0]] = exponents.get(last[0], 0) + last[2]
            scale *= last[1] ** last[2]
            pending = 1
        else:
            return None
    dimensions = " ".join(f"{d}^{e}" for d, e in sorted(exponents.items()) if e)
    return Reading(dimensions, scale) if dimensions else None


def compatible(left: Unit | None, right: Unit | None) -> bool:
    """Whether two numbers with these units may be compared at all."""
    if left is None or right is None:
        return True
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return bool(left & right)
    return left == right
