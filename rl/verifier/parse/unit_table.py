"""Defines units, words that change a number, and words for what a number counts."""

import re
from fractions import Fraction

# Units by dimension: names, and size in metres, seconds, grams, dollars, months, bytes.
# Short names of different units may differ only in case (mPa, MPa).
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
# Units with prefixes: dimension, symbols, names, size, and usual prefixes of the
# symbols. Unusual prefixes would make spellings in the wrong case ambiguous.
_PREFIXED: tuple[tuple[str, str, str, int | str, str], ...] = (
    ("length^1", "m", "meter metre", 1, "k d c m u n"),
    ("time^1", "s", "second", 1, "m u n"),
    ("mass^1", "g", "gram", 1, "M k m u"),
    ("length^3", "L l", "liter litre", "1/1000", "d c m u"),
    ("length^1 mass^1 time^-2", "N", "newton", 1000, "M k m u"),
    ("length^2 mass^1 time^-2", "J", "joule", 1000, "G M k m u"),
    ("length^2 mass^1 time^-2", "eV", "electronvolt", "1.602176634e-16", "G M k m"),
    ("length^2 mass^1 time^-2", "Wh", "watthour", 3600000, "T G M k"),
    ("length^2 mass^1 time^-3", "W", "watt", 1000, "T G M k m u"),
    ("length^-1 mass^1 time^-2", "Pa", "pascal", 1000, "G M k m"),
    ("time^-1", "Hz", "hertz", 1, "T G M k"),
    ("volt^1", "V", "volt", 1, "M k m u"),
    ("amp^1", "A", "ampere amp", 1, "k m u n"),
    ("ohm^1", "", "ohm", 1, ""),
    ("mol^1", "mol", "mole", 1, "k m u n"),
)
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
    for dimensions, symbols, names, scale, usual in _PREFIXED:
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
    parts = (part.split("^") for part in dimensions.split())
    return {name: int(exponent) for name, exponent in parts}


def _careless(table: dict[str, Entry]) -> dict[str, Entry]:
    """Returns the units whose case does not matter, by lower-case name."""
    found: dict[str, list[Entry]] = {}
    for word, entry in table.items():
        entries = found.setdefault(word.lower(), [])
        if entry not in entries:
            entries.append(entry)
    return {word: entries[0] for word, entries in found.items() if len(entries) == 1}


UNITS = _table()
ANY_CASE = _careless(UNITS)
CURRENCY = frozenset("$€£¥₹")
LETTERS = frozenset(word for word in UNITS if len(word) == 1 and word.isalpha())
"""Units of one letter, whose case matters: 2 N are newtons, 2 n is a product."""
SHORT = frozenset(
    "cm mm km dm ft yd mi min hr kg lb lbs oz sq ml mph kph hz mol rad pm am usd ms"
    " pct cents cent dollars dollar yen euros euro meters metres sec kw kj pa".split()
)
"""Runs of letters that are read as a unit after a number."""
IN_PLURAL = frozenset("km cm mm kg gm hr yd ml kb mb gb tb wk yr".split())
SCALES: dict[str, int | Fraction] = {
    "hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "crore": 10**7, "dozen": 12,
    "million": 10**6, "billion": 10**9, "trillion": 10**12, "quadrillion": 10**15,
    "quintillion": 10**18, "sextillion": 10**21, "septillion": 10**24,
    "half": Fraction(1, 2), "halves": Fraction(1, 2),
}  # fmt: skip
# Words that calculate anywhere, also in a label.
CALCULATING = frozenset(
    "not no never isn't wrong incorrect false plus minus double doubles doubled triple"
    " tripled treble trebled quadruple quadrupled halve halved half halves thrice twice"
    " inverted reversed negate negated squared cubed multiplied divided decremented"
    " incremented exponentiated subtracted".split()
)
# Words that calculate before "of": "the opposite of". Alone, they may name a value.
CALCULATING_OF = frozenset(
    "square cube quarter quarters reciprocal inverse negative negation opposite fold"
    " power".split()
)
CALCULATING_BY = frozenset("increased decreased reduced raised".split())
# Words that change the number before them or make it unknown. Number words also do:
# see `NUMBER_WORD`.
CHANGING = (
    (CALCULATING - {"half", "halves", "squared", "cubed"})
    | CALCULATING_BY
    | (CALCULATING_OF - {"square", "cube", "negative"})
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
NUMBER_WORD = re.compile(
    r"zero|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|\w+teen|\w+illion)(?:e?s)?"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ties|\w+folds?"
    # fractions and ordinals
    r"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w*teen|\w*tie|hundred|thousand"
    r"|\w+illion|\w)ths?|thirds?"
)
POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}
POWERS |= {"degrees": 1, "degree": 1, "deg": 1}  # "degrees Celsius"
# Words about the number, not about what it counts: "17 in total".
_SUMMING = frozenset(
    "total altogether each left remaining exactly exact simplified overall only".split()
)
FILLER = _SUMMING | set(
    "times of the a an in is are totals units unit all and there have has these those"
    " such their his her its deg".split()
)
# Words that may follow a unit: 10 years old, 3 feet tall, 5 miles away.
ATTRIBUTES = _SUMMING | set("old tall high long wide deep thick away apart".split())
PLACES = frozenset("of in on at for from to with without that which who".split())
# Common nouns of problems, and words before them, which only name what is counted.
NEUTRAL = (
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
NO_NOUN = frozenset(
    "negative positive even odd real complex rational whole natural prime cube"
    " pair".split()
)
IRREGULAR = {
    "feet": "foot", "inches": "inch", "children": "child", "people": "person",
    "men": "man", "women": "woman", "mice": "mouse", "geese": "goose",
    "teeth": "tooth", "dice": "die", "halves": "half", "vertices": "vertex",
    "matrices": "matrix", "loaves": "loaf", "leaves": "leaf", "knives": "knife",
    "wolves": "wolf", "shelves": "shelf", "radii": "radius", "fish": "fish",
    "sheep": "sheep", "deer": "deer",
}  # fmt: skip
