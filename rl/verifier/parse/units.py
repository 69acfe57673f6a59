"""Parses units of measure and counting words that may follow a number.

A missing unit is accepted, but a different unit is not. Units of one dimension are
converted. Other words ("17 dogs") name what is counted. They are accepted only if they
cannot change the number: a word may be an operation ("n doubled") or a number ("n
lakh"), and no list of such words is complete.
"""

import re
from fractions import Fraction
from typing import NamedTuple

Unit = str | frozenset[str]
"""Type of a unit.

A known unit is a text with its dimensions, such as "length^1 time^-1" or "mass^1 of
rice". An unknown unit is the set of its words, marked by their place: "apples", "red-"
before the noun, "of sugar" after it.
"""

# Units by dimension: names, and size in metres, seconds and grams. Short names of
# different units may differ only in case (mPa, MPa).
_MEASURES: dict[str, dict[str, int | str | Fraction]] = {
    "length^1": {
        "micron": "1e-6", "angstrom": "1e-10", "in inch inches": "0.0254",
        "ft foot feet": "0.3048", "yd yard": "0.9144", "mi mile": "1609.344",
        "lightyear ly": "9460730472580800", "parsec": "3.0856775814913673e16",
    },
    "time^1": {
        "sec": 1, "min minute": 60, "h hr hour": 3600, "day": 86400,
        "week wk": 604800,
    },
    "mass^1": {
        "gm": 1, "lb lbs pound": "453.59237", "oz ounce": "28.349523125",
        "ton tonne": 10**6,
    },
    "length^3": {
        "cc": "1e-6", "gal gallon": "0.003785411784", "quart qt": "0.000946352946",
    },
    "length^2": {"acre": "4046.8564224", "hectare ha": 10000},
    "length^1 time^-1": {"mph": "0.44704", "kph kmh kmph": "5/18"},
    "length^-2": {"mpg": Fraction("1609.344") / Fraction("0.003785411784")},
    "length^1 mass^1 time^-2": {"dyne": "1/100"},
    "length^2 mass^1 time^-2": {
        "erg": "1e-4", "cal calorie": 4184, "kcal kilocalorie": 4184000, "Nm": 1000,
    },
    "length^-1 mass^1 time^-2": {"atm atmosphere": 101325000},
    "money^1": {
        "$ dollar buck usd": 1, "cent ¢": "1/100", "nickel": "1/20", "dime": "1/10",
    },
    "month^1": {"month mo": 1, "year yr": 12, "decade": 120, "century": 1200},
    "byte^1": {
        "byte": 1, "bit": "1/8", "kb kilobyte": 10**3, "mb MB megabyte": 10**6,
        "gb GB gigabyte": 10**9, "tb TB terabyte": 10**12,
        "kbit kilobit": 125, "Mb Mbit megabit": 125000, "Gb Gbit gigabit": 125000000,
    },
}  # fmt: skip
# Units with prefixes: symbols, names, size, and usual prefixes of the symbols. Unusual
# prefixes would make spellings in the wrong case ambiguous.
_PREFIXED: dict[str, tuple[tuple[str, str, int | str, str], ...]] = {
    "length^1": (("m", "meter metre", 1, "k d c m u n"),),
    "time^1": (("s", "second", 1, "m u n"),),
    "mass^1": (("g", "gram", 1, "M k m u"),),
    "length^3": (("L l", "liter litre", "1/1000", "d c m u"),),
    "length^1 mass^1 time^-2": (("N", "newton", 1000, "M k m u"),),
    "length^2 mass^1 time^-2": (
        ("J", "joule", 1000, "G M k m u"),
        ("eV", "electronvolt", "1.602176634e-16", "G M k m"),
        ("Wh", "watthour", 3600000, "T G M k"),
    ),
    "length^2 mass^1 time^-3": (("W", "watt", 1000, "T G M k m u"),),
    "length^-1 mass^1 time^-2": (("Pa", "pascal", 1000, "G M k m"),),
    "time^-1": (("Hz", "hertz", 1, "T G M k"),),
    "volt^1": (("V", "volt", 1, "M k m u"),),
    "amp^1": (("A", "ampere amp", 1, "k m u n"),),
    "ohm^1": (("", "ohm", 1, ""),),
    "mol^1": (("mol", "mole", 1, "k m u n"),),
}
_PREFIXES: dict[str, int | str] = {
    "T tera": 10**12, "G giga": 10**9, "M mega": 10**6, "k kilo": 10**3,
    "d deci": "1e-1", "c centi": "1e-2", "m milli": "1e-3", "u micro": "1e-6",
    "n nano": "1e-9",
}  # fmt: skip
_APART = (
    "€ euro eur|£ gbp|¥ yen|₹ rupee rs|yuan rmb|am|pm|K kelvin|C celsius|F fahrenheit"
    "|radian rad|rpm|coulomb|farad|tesla|unit"
)

Entry = tuple[dict[str, int], Fraction]


def _table() -> dict[str, Entry]:
    table: dict[str, Entry] = {}
    for dimensions, measures in _MEASURES.items():
        for words, scale in measures.items():
            for word in words.split():
                table[word] = (_exponents(dimensions), Fraction(scale))
    for dimensions, units in _PREFIXED.items():
        for symbols, names, scale, usual in units:
            for word in (symbols + " " + names).split():
                table[word] = (_exponents(dimensions), Fraction(scale))
            for prefix, factor in _PREFIXES.items():
                short, long = prefix.split()
                size = Fraction(scale) * Fraction(factor)
                spelled = [long + name for name in names.split()]
                if short in usual.split():
                    spelled += [short + symbol for symbol in symbols.split()]
                for word in spelled:
                    table[word] = (_exponents(dimensions), size)
    for words in _APART.split("|"):
        for word in words.split():
            table[word] = ({words.split()[-1]: 1}, Fraction(1))
    return table


def _exponents(dimensions: str) -> dict[str, int]:
    exponents = {}
    for part in dimensions.split():
        name, _, exponent = part.partition("^")
        exponents[name] = int(exponent)
    return exponents


def _careless(table: dict[str, Entry]) -> dict[str, Entry]:
    """Returns units by lower-case name, if their case does not matter."""
    found: dict[str, list[Entry]] = {}
    for word, entry in table.items():
        entries = found.setdefault(word.lower(), [])
        if entry not in entries:
            entries.append(entry)
    return {word: entries[0] for word, entries in found.items() if len(entries) == 1}


_UNITS = _table()
_CARELESS = _careless(_UNITS)
CURRENCY = frozenset("$€£¥₹")
LETTERS = frozenset(word for word in _UNITS if len(word) == 1 and word.isalpha())
"""Units of one letter, whose case matters: 2 N are newtons, 2 n is a product."""
SHORT = frozenset(
    "cm mm km dm ft yd mi min hr kg lb lbs oz sq ml mph kph hz mol rad pm am usd ms"
    " pct cents cent dollars dollar yen euros euro meters metres sec kw kj pa".split()
)
"""Runs of letters that are read as a unit after a number."""
_IN_PLURAL = frozenset("km cm mm kg gm hr yd ml kb mb gb tb wk yr".split())
_SCALES: dict[str, int | Fraction] = {
    "hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "crore": 10**7, "dozen": 12,
    "million": 10**6, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15,
    "quintillion": 10**18, "sextillion": 10**21, "septillion": 10**24,
    "half": Fraction(1, 2), "halves": Fraction(1, 2),
}  # fmt: skip
# Words that calculate anywhere, also in a label.
_CALCULATING = frozenset(
    "not no never isn't wrong incorrect false plus minus double doubles doubled triple"
    " tripled treble trebled quadruple quadrupled halve halved half halves thrice twice"
    " inverted reversed negate negated squared cubed multiplied divided decremented"
    " incremented exponentiated subtracted".split()
)
# Words that calculate before "of": "the opposite of". Alone, they may name a value.
_CALCULATING_OF = frozenset(
    "square cube quarter quarters reciprocal inverse negative negation opposite fold"
    " power".split()
)
_CALCULATING_BY = frozenset("increased decreased reduced raised".split())
# Words that change the number before them or make it unknown. Number words also do:
# see `_NUMBER_WORD`.
_CHANGING = (
    (_CALCULATING - {"half", "halves", "squared", "cubed"})
    | _CALCULATING_BY
    | (_CALCULATING_OF - {"square", "cube", "negative"})
    | frozenset(
        "maybe perhaps probably possibly either neither nor or unless except times"
        " over under truncated rounded than least most up below above approx unknown"
        " cannot can't undefined impossible remainder mod modulo modulus root"
        " factorial but about around nearly almost percentile by base choose off gross"
        " score googol mil mils grand bps ppm permille mille ish th st nd rd reverse"
        " conjugate complement complemented added transposed flipped itself themselves"
        " repeated repeating recurring sign signed log ln exp sqrt sin cos tan binary"
        " ternary octal hex hexadecimal exponent numerator denominator".split()
    )
)
_NUMBER_WORD = re.compile(
    r"zero|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|\w+teen|\w+illion)(?:e?s)?"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ties|\w+folds?"
    # fractions and ordinals
    r"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w*teen|\w*tie|hundred|thousand"
    r"|\w+illion|\w)ths?|thirds?"
)
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}
_POWERS |= {"degrees": 1, "degree": 1, "deg": 1}  # "degrees Celsius"
# Words about the number, not about what it counts: "17 in total".
_SUMMING = frozenset(
    "total altogether each left remaining exactly exact simplified overall only".split()
)
_FILLER = _SUMMING | set(
    "times of the a an in is are totals units unit all and there have has these those"
    " such their his her its deg".split()
)
# Words that may follow a unit: 10 years old, 3 feet tall, 5 miles away.
_ATTRIBUTES = _SUMMING | set("old tall high long wide deep thick away apart".split())
_PLACES = frozenset("of in on at for from to with without that which who".split())
# Common nouns of problems, and words before them, which only name what is counted.
_NEUTRAL = (
    "way solution number digit integer people person child man woman student answer"
    " result item piece object thing pair set subset tuple triple triplet element term"
    " member case outcome event arrangement permutation combination possibility choice"
    " option selection order ordering factor divisor multiple root prime edge vertex"
    " face side diagonal point line segment triangle square rectangle circle polygon"
    " cube region area length width path route step move turn round game group team"
    " row column value word letter pattern sequence function equation color"
    " different distinct possible unique ordered unordered positive nonnegative"
    " non zero negative real complex rational whole natural valid even odd per"
    " consecutive"
)
# In the singular and alone, these words may describe or change the number.
_NO_NOUN = frozenset(
    "negative positive even odd real complex rational whole natural prime cube"
    " pair".split()
)
_IRREGULAR = {
    "feet": "foot", "inches": "inch", "children": "child", "people": "person",
    "men": "man", "women": "woman", "mice": "mouse", "geese": "goose",
    "teeth": "tooth", "dice": "die", "halves": "half", "vertices": "vertex",
    "matrices": "matrix", "loaves": "loaf", "leaves": "leaf", "knives": "knife",
    "wolves": "wolf", "shelves": "shelf", "radii": "radius", "fish": "fish",
    "sheep": "sheep", "deer": "deer",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z$€£¥₹¢°']+|\d+|[/^*-]")
_LEADING = re.compile(r"(?:\s*(?:[A-Za-z¢€£¥₹]+|[/*-]|\^\s*-?[1-3](?!\d)))*")
# In "ms^-1", "ms" means metre and second, not millisecond.
_RUN_TOGETHER = re.compile(r"\b(k?m(?=[sh])|cm(?=s)|N(?=m))(?=[shm]\s*\^\s*\{?\s*-)")
_MARK = re.compile(r"((?:of )?)(.*?)(-?)\Z")
_CURRENCY_OF_A_COUNTRY = re.compile(r"(?i)\bu\.?s\.?(?=\s*(?:\\?\$|dollar))")


def _singular(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for ending in ("ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            base = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if (
                ending != "es"
                or base in _UNITS
                or base.endswith(("s", "x", "ch", "sh"))
            ):
                return base
    return word


def stem(word: str) -> str:
    """Returns a stem shared by a word and its plural, such as "cooky" for cookies."""
    word = word.rpartition("-")[2]
    word = _IRREGULAR.get(word, word)
    if word.endswith("s") and is_plural(word):
        word = word[:-1]
    return re.sub("i?e$|i$", lambda end: "y" if "i" in end[0] else "", word)


def stems(text: str) -> frozenset[str]:
    """Returns the stems of all words of a text."""
    return frozenset(stem(word) for word in re.findall("[a-z]+", text.lower()))


_NEUTRAL_STEMS = stems(_NEUTRAL)
# Neutral nouns for single things: where socks are counted, "pairs" is wrong.
_ONE_BY_ONE = _NEUTRAL_STEMS - stems(
    "pair set subset tuple triple triplet group team row column per"
)


def _lookup(word: str) -> Entry | None:
    if len(word) == 1 and word.isalpha():
        return _UNITS.get(word)
    lower = word.lower()
    if (entry := _UNITS.get(word) or _CARELESS.get(lower)) is not None:
        return entry
    one = _singular(lower)
    # Names have a plural, but few symbols do: "has" is not a hectare.
    return _CARELESS.get(one) if len(one) > 2 or one in _IN_PLURAL else None


class Reading(NamedTuple):
    """Represents the meaning of the words after a number.

    Attributes:
      unit: unit of the number, or None if the words do not name one, as in "in total".
      scale: size of the unit in base units of its dimension.
      multiplier: factor of the number itself, such as 10**6 for "million".
    """

    unit: Unit | None
    scale: Fraction = Fraction(1)
    multiplier: Fraction = Fraction(1)


def parse_unit(text: str) -> Reading | None:
    """Parses the words after a number.

    Args:
      text: words such as "cm^2", "miles per hour", "square feet", "dogs".

    Returns:
      Reading of the words, or None if they change the meaning of the number.
    """
    words = _with_per(_words(text))
    if _changes_a_number(words):
        return None
    if words and words[0] in CURRENCY:  # "$5 dollars" is a price, not dollars squared
        words[1:] = [w for w in words[1:] if _lookup(w) != _lookup(words[0])]
        others = [entry for w in words[1:] if (entry := _lookup(w)) is not None]
        if any("money" in exponents for exponents, _ in others):
            return None  # "$10 cents" is ambiguous
    if (known := _known(words)) is not None:
        return known
    multiplier = Fraction(1)
    rest = []
    for word in words:
        scale = _SCALES.get(_singular(word.lower())) or _SCALES.get(word.lower())
        if scale is None:
            rest.append(word)
        else:
            multiplier *= scale
    while rest and rest[-1].lower() in _ATTRIBUTES:
        rest.pop()
    if rest[-1:] == ["in"] and (len(rest) == 1 or _lookup(rest[-2])):
        rest.pop()  # a preposition, not inches: "hours in total"
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
    """Returns the known unit at the start of a text: "miles per hour does it ..."

    Returns:
      Reading of the unit. For a price ("dollars per hour") the reading of its currency
      follows. Empty if the unit continues with unknown words ("miles per lap"), or if
      its name is not a measure here ("second place", "dollar bills").
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
        goes_on = rest[:1] and (rest[0] in _POWERS or rest[0] in ("per", "/", "^", "*"))
        rate = rest[:1] in (["a"], ["an"]) and _known(rest[1:]) is not None
        no_measure = _is_singular_name(words[0]) or (words[0] == "in" and rest)
        if goes_on or rate or (end == 1 and no_measure):
            return ()
        first = _known(words[:1])
        if first is not None and first.unit == "money^1" != reading.unit:
            return (reading, first)  # the unit of a price and its currency
        return (reading,)
    return ()


def _is_singular_name(word: str) -> bool:
    lower = word.lower()
    return lower == _singular(lower) and (len(word) > 3 or lower in ("day", "ton"))


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
    """Returns whether "-" joins two words: a "three-digit" number is not three."""
    if first.lower() == "non":
        return True
    single = len(first) == 1 and _lookup(first) is None
    if not (single or first.isdigit() or _is_number_word(first)):
        return False
    changes = second.lower() in _CHANGING or _is_number_word(second)
    return second.isalpha() and not changes


def _is_number_word(word: str) -> bool:
    return _NUMBER_WORD.fullmatch(word.lower()) is not None


def _changes_a_number(words: list[str]) -> bool:
    lower = [word.lower() for word in words]
    return lower != ["times"] and any(
        word in _CHANGING or (_is_number_word(word) and _singular(word) not in _SCALES)
        for word in lower
    )


def calculates(label: str) -> bool:
    """Returns whether words before "=" calculate: "twice the answer"."""
    words = re.findall("[a-z'-]+", label.lower())
    if not _CALCULATING.isdisjoint(words):
        return True
    of = words.index("of") if "of" in words else 0
    head = words[of - 1].rpartition("-")[2] if of else ""
    if head in _CALCULATING_OF or _is_number_word(head):
        return True
    for word, then in zip(words, words[1:], strict=False):
        if _is_number_word(word) and then in ("times", "more", "less", "fewer"):
            return True
        if word in _CALCULATING_BY and then in ("by", "to"):
            return True
        if word in _CALCULATING_OF and then == "root":
            return True
    return False


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
    """Parses words for things that are counted, or a known unit "of" something.

    Returns:
      Reading of the words, marked by their place; see `Unit`. None if the words are not
      a noun phrase, or contain "per" or a power.
    """
    lower = [word.lower() for word in words]
    at = next((i for i, word in enumerate(lower) if word in _PLACES), len(words))
    known = _known(words[:at])
    nouns = [word for word in lower[:at] if word not in _FILLER and word != "-"]
    behind = [w for w in lower[at:] if w not in _FILLER | _PLACES and w != "-"]
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
    marks = {f"{noun}-" for noun in nouns[:-1]} | set(nouns[-1:])
    return Reading(frozenset(marks | {f"of {word}" for word in behind}) or None)


def _is_plain(word: str) -> bool:
    letters = word.rpartition("-")[2].replace("'", "")
    return len(word) > 1 and letters.isalpha() and word not in ("squared", "cubed")


def is_plural(word: str) -> bool:
    if word in _IRREGULAR:
        return True
    endings = ("ss", "us", "is", "ths", "wards", "squareds", "cubeds")
    return word.endswith("s") and not word.endswith(endings)


def same_unit(one: Unit, other: Unit) -> bool:
    """Returns whether two units have the same dimension or name the same things.

    One of them may describe the things further (red apples, apples).
    """
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
    """Returns whether an answer may omit a unit, without regard to the problem.

    A plural names what is counted. A singular after a number may be an operation or a
    number: inverse, halved, score.
    """
    if isinstance(unit, str):
        return True
    return _names_things(unit) and all(
        is_plural(noun) or stem(noun) in _NEUTRAL_STEMS and noun not in _NO_NOUN
        for noun in _heads(unit)
    )


def is_named(unit: Unit, named_by: frozenset[str]) -> bool:
    """Returns whether a text with these stems names everything that a unit counts."""
    if isinstance(unit, str):
        return {*map(stem, unit.split(" of ")[1:])} <= named_by | _NEUTRAL_STEMS
    operations = any(noun.endswith("ed") or noun in _NO_NOUN for noun in _heads(unit))
    named = words_of(unit) <= named_by | _NEUTRAL_STEMS
    return _names_things(unit) and named and not operations


def answers(
    unit: frozenset[str], nouns: frozenset[str], others: frozenset[str]
) -> bool:
    """Returns whether an answer counts the things that the problem asks for.

    Args:
      unit: words of the answer's unit.
      nouns: stems of the nouns that the problem asks for.
      others: stems of the words before these nouns, which may replace a noun: "12
        more".
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


def words_of(unit: frozenset[str]) -> frozenset[str]:
    """Returns the stems of the words of a unit."""
    return frozenset(stem(mark.removeprefix("of ").rstrip("-")) for mark in unit)


def _dimensions(exponents: dict[str, int]) -> str:
    return " ".join(f"{d}^{e}" for d, e in sorted(exponents.items()) if e)


def _known(words: list[str]) -> Reading | None:
    """Returns the reading of words that are only known units, else None."""
    if words and words[-1] in ("/", "per", "a", "an", "*", "-"):
        return None
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
        elif word in ("/", "per") or (word in ("an", "a") and last is not None):
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
        elif word in ("*", "-") and last is not None:
            continue
        elif (entry := _lookup(word)) is not None:
            if "unit" in entry[0] and not exponents:
                # "square units" and "units" do not name a unit.
                power = words[position:]
                return Reading(None) if power in ([], ["^", "2"], ["^", "3"]) else None
            last = (*entry, sign * pending)
            scale = include(*last)
            pending = 1
        else:
            return None
    dimensions = _dimensions(exponents)
    return Reading(dimensions, scale) if dimensions else None
