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

# Dimensions in metres, seconds and grams: words, then their size.
_MEASURES: dict[str, dict[str, int | str]] = {
    "length^1": {
        "m meter metre": 1, "cm centimeter centimetre": "1/100",
        "mm millimeter millimetre": "1/1000", "km kilometer kilometre": 1000,
        "um micrometer micron": "1e-6", "nm nanometer": "1e-9", "angstrom": "1e-10",
        "dm decimeter": "1/10", "in inch inches": "0.0254", "ft foot feet": "0.3048",
        "yd yard": "0.9144", "mi mile": "1609.344",
    },
    "time^1": {
        "s sec second": 1, "ms millisecond": "1/1000", "us microsecond": "1e-6",
        "ns nanosecond": "1e-9", "min minute": 60, "h hr hour": 3600, "day": 86400,
        "week wk": 604800,
    },
    "mass^1": {
        "g gram": 1, "kg kilogram": 1000, "mg milligram": "1/1000",
        "lb lbs pound": "453.59237", "oz ounce": "28.349523125", "ton tonne": 10**6,
    },
    "length^3": {
        "L l liter litre": "1/1000", "ml milliliter millilitre cc": "1e-6",
        "gal gallon": "0.003785411784", "quart qt": "0.000946352946",
    },
    "length^2": {"acre": "4046.8564224", "hectare ha": 10000},
    "length^1 time^-1": {"mph": "0.44704", "kph kmh": "5/18"},
    "length^1 mass^1 time^-2": {"N newton": 1000},
    "length^2 mass^1 time^-2": {
        "J joule": 1000, "kJ kilojoule": 10**6, "eV": "1.602176634e-16",
        "erg": "1e-4",
        "cal calorie": 4184, "kcal kilocalorie": 4184000,
    },
    "length^2 mass^1 time^-3": {"W watt": 1000, "kW kilowatt": 10**6},
    "length^-1 mass^1 time^-2": {"Pa pascal": 1000, "kPa kilopascal": 10**6},
    "time^-1": {"Hz hertz": 1, "kHz": 1000, "MHz": 10**6},
    "money^1": {
        "$ dollar buck usd": 1, "cent ¢": "1/100", "nickel": "1/20", "dime": "1/10",
    },
    "month^1": {"month mo": 1, "year yr": 12, "decade": 120, "century": 1200},
    "byte^1": {"byte": 1, "kb kilobyte": 10**3, "mb megabyte": 10**6, "gb": 10**9},
}  # fmt: skip
_APART = (
    "€ euro eur|£ gbp|¥ yen|₹ rupee rs|yuan rmb|am|pm|V volt|A ampere amp|ohm|K kelvin"
    "|C celsius|F fahrenheit|mole mol|radian rad|unit"
)


def _table() -> dict[str, tuple[dict[str, int], Fraction]]:
    table: dict[str, tuple[dict[str, int], Fraction]] = {}
    for dimensions, measures in _MEASURES.items():
        exponents = {}
        for part in dimensions.split():
            name, _, exponent = part.partition("^")
            exponents[name] = int(exponent)
        for words, scale in measures.items():
            for word in words.split():
                table[word] = (exponents, Fraction(scale))
    for words in _APART.split("|"):
        for word in words.split():
            table[word] = ({words.split()[-1]: 1}, Fraction(1))
    return table


_UNITS = _table()
LETTERS = frozenset(word for word in _UNITS if len(word) == 1 and word.isalpha())
"""One letter is a unit in its own case only: 2 N are newtons, 2 n is a product."""
SHORT = frozenset(
    "cm mm km dm ft yd mi min hr kg lb lbs oz sq ml mph kph hz mol rad pm am usd ms"
    " pct cents cent dollars dollar yen euros euro meters metres sec kw kj pa".split()
)
"""Plain letter runs that are read as a unit after a number."""
_SCALES = {
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
    " sixths eighth eighths but about around nearly almost".split()
)
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}
_FILLER = frozenset(
    "times of the a an in is are total units unit each all and exactly value"
    " values".split()
)
_WORD = re.compile(r"[A-Za-z$€£¥₹¢°']+|\d+|[/^*-]")
_PLURALS = {"feet": "foot", "inches": "inch", "children": "child", "people": "person"}


def _stem(word: str) -> str:
    if word in _PLURALS:
        return _PLURALS[word]
    for ending in ("ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            base = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if ending != "es" or base in _UNITS or base.endswith(("s", "x", "ch")):
                return base
    return word


def _lookup(word: str) -> tuple[dict[str, int], Fraction] | None:
    lower = word.lower()
    if len(word) == 1 and word.isalpha():
        return _UNITS.get(word)
    return _UNITS.get(word) or _UNITS.get(lower) or _UNITS.get(_stem(lower))


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
    text = re.sub(r"(?i)\b([ap])\.m\b\.?", r"\1m", text)
    words = _WORD.findall(text.replace("sq.", "square").replace("cu.", "cubic"))
    lower = [word.lower() for word in words]
    if any(word in _DENYING for word in lower) and lower != ["times"]:
        return None
    if (known := _known(words)) is not None:
        return known
    multiplier = Fraction(1)
    for word in lower:
        multiplier *= _SCALES.get(word, 1)
    if _POWERS.keys() & set(lower):
        return None
    rest = [
        word
        for word, small in zip(words, lower, strict=True)
        if word.isalpha() and small not in _FILLER and small not in _SCALES
    ]
    if not rest:
        return Reading(None, multiplier=multiplier)
    if multiplier != 1 and (known := _known(rest)) is not None:
        return known._replace(multiplier=multiplier)
    if any(word.isdigit() for word in words):
        return None
    stems = frozenset(_stem(word.lower()) for word in rest)
    return Reading(stems, multiplier=multiplier)


def _known(words: list[str]) -> Reading | None:
    exponents: dict[str, int] = {}
    scale = Fraction(1)
    sign, pending = 1, 1
    last: tuple[dict[str, int], Fraction, int] | None = None

    def include(unit: dict[str, int], size: Fraction, times: int) -> Fraction:
        for name, exponent in unit.items():
            exponents[name] = exponents.get(name, 0) + exponent * times
        return scale * size**times

    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if (raised := _POWERS.get(word.lower())) is not None:
            if not word.lower().endswith("d"):
                pending = raised
            elif last is None:
                return None
            else:
                scale = include(last[0], last[1], last[2] * (raised - 1))
        elif word in ("/", "per", "an", "a"):
            sign = -1
        elif word == "^" or word.isdigit():
            negative = word == "^" and words[position : position + 1] == ["-"]
            position += negative
            digits = word if word.isdigit() else "".join(words[position : position + 1])
            position += word == "^"
            if last is None or digits not in ("1", "2", "3"):
                return None
            times = last[2] * ((-1 if negative else 1) * int(digits) - 1)
            scale = include(last[0], last[1], times)
        elif word == "*":
            continue
        elif (entry := _lookup(word)) is not None:
            if "unit" in entry[0] and not exponents:
                # "square units", "units": no unit is named at all.
                return Reading(None) if position == len(words) else None
            last = (*entry, sign * pending)
            scale = include(*last)
            pending = 1
        else:
            return None
    dimensions = " ".join(f"{d}^{e}" for d, e in sorted(exponents.items()) if e)
    return Reading(dimensions, scale) if dimensions else None
