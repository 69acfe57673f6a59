"""Reads from a problem's text what it asks for, such as a unit or things to count."""

import functools
import re
from collections.abc import Iterator
from fractions import Fraction

from ..parse import units as u
from ..parse.answers import Answer, option_in, parse_answer
from ..parse.normalize import MAX_ANSWER, SCALE, TEXT_COMMAND, clean
from ..parse.words import spoken_numbers

# "A number of minutes" is not matched: it usually describes given data.
_UNITS = re.compile(
    r"(?i)\b(?P<how>in|how many(?:\s+(?:more|fewer|less|total|whole|full|complete"
    r"|additional|extra))?)\s+"
)
_SPACES = re.compile(r"\\[,;:! ]|~")
_DRESS = re.compile(rf"{TEXT_COMMAND}|[{{}}$]")
_SAID = re.compile(rf"\W*{TEXT_COMMAND}")
# A single letter may be a set or a variable of the problem: integers in N, a line in m.
_LETTER_ALONE = re.compile(
    r"\W*(?:[A-KM-Za-z](?![A-Za-z])|L_)"
    r"(?!\s*(?:\$?\^\s*\{?-?[1-3]|/|\\cdot\b|per\b))"
)
# Matches the letter before an option of the problem: \textbf{(A)}, (A), A.
_OPTION = re.compile(
    rf"(?:(?:{TEXT_COMMAND}|\\mathbf\s*)\{{\s*)?(?<![A-Za-z(])\(?([A-H])(?:\)|[.:](?=[\s}}]))"
)
_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_MAX_PHRASE = 80
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")
_QUESTION = re.compile(
    r"(?i)\b(?:how|what|which|find|determine|compute|calculate|number of)\b"
)
_OTHER_QUESTION = re.compile(r"(?i)\b(?:what|which|how(?! many))\b")
_COUNTS = [re.compile(r"(?i)\bhow many\b"), re.compile(r"(?i)\bnumber of\b")]
_TOKEN = re.compile(r"[A-Za-z][A-Za-z'-]*|[.,;:?!()]")
_SKIPPED = frozenset(
    ", of the these those his her its their my your our and or all".split()
)
_ENDS = frozenset(
    ". ; : ? ! ( ) is are was were be do does did can could will would shall should"
    " has have had must may might there if in on at with that which than for from to"
    " by as he she they it we you who whose when where while after before per each"
    " every a an not how such".split()
)
# Matches "as a common fraction", "to scientific notation".
_NOTATION = re.compile(
    r"(?i)\b(?:as|in|into|to|using)\s+(?:(?:an?|the|its|their|terms of|common|proper"
    r"|improper|reduced|simplified|simplest|exact|terminating|repeating|standard)\s+)*"
    r"(?:fractions?|decimals?(?! (?:point|place))|percent(?:age)?|scientific notation"
    r"|mixed numbers?|radians|degrees)\b"
)
_NUMERAL = re.compile(
    r"[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3})+(?:\.[0-9]+)?|[0-9]*\.[0-9]+|[0-9]+"
)
_MAX_NUMERAL = 100
_RATIO = re.compile(r"(?i)\bratio\b")
_TIME = re.compile(r"(?i)\bwhat time\b|\bwhen\b.*\?|\bclock\b|\b[ap]\.?m\b")
_WHAT_PERCENT = re.compile(r"(?i)\b(?:what|how many) per\s?cent|\bwhat percentage")
_GLUED_UNIT = re.compile(
    r"(-?\d+(?:\.\d+)?)(?:\s|~|\\[,;: ]|\{|\\math(?:it|rm)\s*)*([a-zA-Z])\s*\}*"
    r"((?:\^\{?[23]\}?)?)"
)
_PERCENT = re.compile(r"(?i)%|\bper\s?cent|\binterest\b")
# Percentages that are not given as numbers; "20 percent" is given.
_ASKS_PERCENT = re.compile(
    r"(?i)\bpercentage|\brate\b|(?<![\d$}\s])\s+per\s?cent\b|[a-z]\$?\s?\\?%"
)
_POINT = re.compile(
    r"(?i)\bpoint|\bcoordinates?\b|\bvert(?:ex|ices)\b|\bordered\b|\bfoc"
)
_INTERVAL = re.compile(
    r"(?i)\binterval|\brange\b|\bdomain\b|inequalit|values\b|[<>]|\\[gl]e"
)
_AMOUNTS = dict(spoken_numbers()) | {
    "half": Fraction(1, 2), "twice": Fraction(2), "double": Fraction(2),
    "thrice": Fraction(3), "triple": Fraction(3), "dozen": Fraction(12),
}  # fmt: skip
_IN_WORDS = "|".join(sorted(_AMOUNTS, reverse=True))
_AMOUNT_WORD = re.compile(rf"(?i)\b(?:{_IN_WORDS})\b")
_NAMED_BASES = {"binary": 2, "ternary": 3, "octal": 8, "hexadecimal": 16}
_BASE = re.compile(
    rf"(?i)\bbases?\W*(?:([0-9]{{1,9}})(?![0-9])|({_IN_WORDS})\b)"
    rf"|\b({'|'.join(_NAMED_BASES)})\b"
)


class Question:
    """Holds what a problem asks for, read from its words.

    Attributes:
      units: the unit that the problem requests, followed by its currency if the unit
        is a price. Empty unless exactly one unit is requested.
      things: whether the problem only asks to count things that are not units.
      letters: letters that do not touch another letter, such as x in 2x.
      asks_percent: whether the problem mentions a rate, or a percentage that it does
        not give as a number.
      points: whether the problem mentions points or tuples, but not intervals.
      times: whether the problem mentions a time of day, but not a ratio.
    """

    def __init__(self, problem: str):
        sentences = [s for s in _SENTENCE_END.split(problem) if _QUESTION.search(s)]
        question = sentences[-1] if sentences else ""
        nouns, others = _things(question)
        self._problem = problem
        self.named = u.stems(problem)
        self.units = _units(problem)
        self.things = bool(nouns) and not any(map(u.is_unit, nouns))
        self.things &= not _OTHER_QUESTION.search(question)
        self.letters = frozenset(_LETTER.findall(problem))
        self.notation = _NOTATION.search(problem) is not None
        self.percents = _PERCENT.search(problem) is not None
        self.asks_percent = _ASKS_PERCENT.search(problem) is not None
        self.points = bool(_POINT.search(problem)) and not _INTERVAL.search(problem)
        self.what_percent = _WHAT_PERCENT.search(problem) is not None
        self.ratios = _RATIO.search(problem) is not None
        self.times = not self.ratios and _TIME.search(problem) is not None
        self._nouns = frozenset(map(u.stem, nouns))
        self._others = u.stems(" ".join(others))

    @functools.cached_property
    def quantities(self) -> frozenset[tuple[Fraction, u.Unit, Fraction]]:
        """Numbers of the problem with a known unit, as (value, unit, unit's size)."""
        text = _DRESS.sub("", _SPACES.sub(" ", self._problem))
        return frozenset(
            (value, unit.unit, unit.scale)
            for end, value in _amounts(text)
            for unit in u.leading_units(text[end:][:_MAX_PHRASE])[:1]
            if unit.unit is not None
        )

    @functools.cached_property
    def numbers(self) -> frozenset[Fraction]:
        """Numbers of the problem; if it mentions percent, also each / 100, and 100."""
        found = {value for _, value in _amounts(self._problem.replace("-", " "))}
        if self.percents:
            found.update([value / 100 for value in found], [Fraction(100)])
        return frozenset(found)

    @functools.cached_property
    def options(self) -> dict[str, Answer]:
        """The values of the options that the problem lists, by letter."""
        marks: list[re.Match[str]] = []
        for match in _OPTION.finditer(self._problem):
            marks = [] if match[1] == "A" else marks
            if match[1] == "ABCDEFGHI"[len(marks)]:
                marks.append(match)
        ends = [*(mark.start() for mark in marks[1:]), len(self._problem)]
        texts = (
            self._problem[m.start() : e] for m, e in zip(marks, ends, strict=False)
        )
        read = (option_in(clean(text.split("\n\n")[0][:MAX_ANSWER])) for text in texts)
        found = {option.letter: parse_answer(option.value) for option in read if option}
        return found if len(found) > 1 else {}

    @functools.cached_property
    def bases(self) -> frozenset[Fraction | int]:
        """Number bases that the problem names: "base 8", "base-eight", "octal"."""
        return frozenset(
            int(digits) if digits else (_AMOUNTS | _NAMED_BASES)[(word or own).lower()]
            for digits, word, own in _BASE.findall(self._problem)
        )

    def respelled(self, answer: str) -> str:
        """Separates a requested one-letter unit from its number: 5m^2 becomes 5 m^2."""
        if match := _GLUED_UNIT.fullmatch(answer):
            reading = u.parse_unit(match[2] + match[3])
            if reading and reading.unit in [asked.unit for asked in self.units]:
                return f"{match[1]} \\text{{ {match[2]}}}{match[3]}"
        return answer

    def allows(self, unit: u.Unit, gold: frozenset[str]) -> bool:
        """Returns whether a unit fits the problem and the stems `gold` of the gold."""
        if not u.is_named(unit, self.named | gold):
            return False
        if isinstance(unit, str):
            return True
        return not self._nouns or u.answers(unit, self._nouns | gold, self._others)


def _amounts(text: str) -> Iterator[tuple[int, Fraction]]:
    for match in _NUMERAL.finditer(text):
        if len(match[0]) <= _MAX_NUMERAL:
            yield match.end(), Fraction(re.sub(r"[^0-9.]", "", match[0]))
    for match in _AMOUNT_WORD.finditer(text):
        yield match.end(), _AMOUNTS[match[0].lower()]


def _things(question: str) -> tuple[list[str], list[str]]:
    for pattern in _COUNTS:
        nouns: list[str] = []
        others: list[str] = []
        for match in pattern.finditer(question):
            several = False
            for word in _TOKEN.findall(question[match.end() :][:_MAX_PHRASE]):
                word = word.lower()
                if word in _ENDS or (several and word == "of"):
                    break
                if word not in _SKIPPED:
                    several = several or u.is_plural(word)
                    (nouns if several else others).append(word)
            if not several:
                return [], []
        if nouns:
            return nouns, others
    return [], []


def _units(problem: str) -> tuple[u.Reading, ...]:
    found = set()
    problem = SCALE.sub(r" degrees \2", problem)
    for match in _UNITS.finditer(problem):
        phrase = problem[match.end() :][:_MAX_PHRASE]
        said = _SAID.match(phrase)
        if match["how"].lower() == "in" and not said and _LETTER_ALONE.match(phrase):
            continue
        if units := u.leading_units(_DRESS.sub("", _SPACES.sub(" ", phrase))):
            found.add(units)
    return found.pop() if len(found) == 1 else ()
