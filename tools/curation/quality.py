"""Fit to learn from: a question of sensible size, a short answer not given away."""

import re
from collections.abc import Callable

from tools.curation.patterns import any_of, found
from tools.curation.row import Row

_QUESTION = any_of(
    r"\?",
    r"(?<![\\A-Za-z])(?:find|determine|compute|calculate|what|how|evaluate|solve|simplify"
    r"|express|list|name|factor(?:i[sz]e)?|expand|convert|estimate|write|round"
    r"|rewrite|state|identify|count|divide|multiply|graph|complete|fill"
    r"|reduce|give|prove|show|work out|deduce|obtain|choose|select|arrange|rearrange"
    r"|represent|translate|approximate|rationali[sz]e|perform|subtract|add|derive|specify"
    r"|enter|answer|minimi[sz]e|maximi[sz]e|guess|sum|decompose|transform|change|put|order"
    r"|sort|let us|describe|indicate|decide|seek|try to|figure out|combine|plot|draw"
    r"|turn"
    r"|replace|construct|locate|predict|test|place|insert|report|provide|integrate"
    r"|differentiate|form)\b",
    r"\bto be (?:found|determined|calculated)",
    # a blank to fill in
    r"_{2,}|(?:\\_\s*)+|\\underline|\\boxed|\(\s*(?:\\q?quad|\\\s)*\s*\)|…|▲",
    r"(?:\b(?:is|are|be|was|of|equals?)|=)(?:[ \t]{3,}|\s*\\q?quad)",
    # a sentence for the answer to end
    r"(?:\b(?:is|are|was|be|equals?|of|by|to|in|as|has|have|at|from|becomes?|gives?|will"
    r"|must|can|than|with|for|into|through|contains?|total|approximately|about|exactly"
    r"|equation|number|then|only|necessarily|display|between|when|always|ratio|length"
    r"|point)|=|:|\.{3}|\\q?quad|\s{3,})\s*[.,$:\\)\]\s]*$",
    # a bare noun phrase names what is wanted
    r"^\W*the (?:(?!\b(?:is|are|was|were|has|have|equals|intersects?)\b)[^?])*$",
)
_ASKS = re.compile(
    r"\?|\b(?:find|determine|compute|calculate|evaluate|what|how|when|if|solve|such)\b",
    re.I,
)
_LEAK = any_of(
    r"(?:\bthe (?:final |correct )?answer is\b|\banswers?\s*[:=]|\bans\s*[.:]"
    r"|\[answer\]"
    r"|\bshow that (?:it|the answer) is\b"
    r"|\bsolution\s*:)[\s:$\\(\[]*(?=[A-Za-z0-9\\{.+-])"
    r"(?!\s*(?:an?|the|in|of|expressed|given|your|not|to|written|\$?m|\$?\\frac\s*\{?\s*"
    r"[a-z]|\$?[a-z]\b|no\b|unique|always|an integer|rounded|as|that|called"
    r"|ambiguous)\b)",
)
_ASKS_NAME = re.compile(
    r"(?:^|[.?!,:]\s+)(?:who|whose|(?:what|which) (?:colou?r|shape|person"
    r"|(?:type|kind|sort)s? of)|what is the (?:compound|element|substance|name of)"
    r"|how (?:were|are) the \w+ (?:divided|arranged|distributed))\b[^.?]*\?\s*$"
    r"|\bfind the (?:compound|element|substance) (?:in|of|with|that)\b",
    re.I,
)
# A double that was printed: 15 to 17 digits.
_PRINTED_DOUBLE = re.compile(
    r"(?<![\d.])(?=(?:\d\.?){15,18}(?![\d.…\\])(?!\s*\.\.))\d+\.\d{9,}"
)
# "How much does a certain mass of oranges cost?"
_LEFT_OPEN = re.compile(
    r"(?:^|[.?!,]\s+)(?:then )?(?:how (?:many|much|long)|what)\b"
    r"(?:(?!\bif\b)[^.?])*\ba certain "
    r"(?:mass|amount|number|edge|length|distance|shape|size|weight|quantity|value"
    r"|volume)\b[^.?]*\?\s*$"
    r"|[-+=|]\s*some expression\b",
    re.I,
)
_PROSE = re.compile(r"[A-Za-z]{3,}")
# `r, h`, `(B)`, or one letter in whatever stands around it.
_SYMBOLS = re.compile(
    r"\$?(?:\\(?:text|mathrm|textbf)\s*\{)?\(?([A-Za-z])\)?\}?"
    r"((?:(?:\s*,\s*|\s+and\s+|\s+)[A-Za-z])*)[$.]*"
)
_CONSTANTS = "ei"
# "..., the largest angle is 60.", and nothing is asked.
_STATED = re.compile(r"(?:\b(?:is|are|be|equals?)|=)[\s$\\(:]*\Z")
_STATEMENT_END = ".$\\) "
_PROPOSITION = re.compile(r"\W*if\b.*\bthen\b", re.I | re.S)
_COMMAND = re.compile(
    r"\\(?:begin|end)\s*\{[^}]*\}(?:\{[lcr|]*\})?"
    r"|\\(?:text|textbf|mathrm|mathbf|mbox|textrm|operatorname)\s*\{|\\[A-Za-z]+"
)
_CONNECTIVES = (
    "or and if for where when is in any all real number numbers integer integers "
    "otherwise odd even positive negative with of the to such that min max mod sin "
    "cos tan log ln lg exp arcsin arccos arctan cot sec csc sqrt pi deg gcd lcm "
    "infty pm approx than per a an at no solution solutions "
)
_UNITS = (
    "cm mm km dm ft feet foot inch inches in yd yard yards mile miles meter meters "
    "metre metres centimeter centimeters kilometer kilometers millimeter gram grams "
    "kg kilograms kilogram lb lbs pound pounds ounce ounces oz ton tons liter "
    "liters litre litres ml cl gallon gallons pint pints quart quarts cup cups "
    "second seconds sec minute minutes hour hours hr hrs day days week weeks month "
    "months year years square cubic sq cu unit units degree degrees radian radians "
    "percent dollar dollars cent cents euro euros yuan rupees rs usd mph kmh kph hz "
    "joule joules newton newtons watt watts kw am ways way times time people "
    "persons students points point rpm mol dozen "
)
_NAMED = (
    "monday tuesday wednesday thursday friday saturday sunday zero one two three four "
    "five six seven eight nine ten eleven twelve first second third fourth fifth sixth "
)
_PLAIN_WORDS = frozenset((_CONNECTIVES + _UNITS + _NAMED).split())


def make_checks(
    *,
    min_chars: int,
    max_chars: int,
    max_answer_chars: int,
) -> dict[str, Callable[[Row], str | None]]:
    """The quality checks at these limits.

    Args:
      min_chars: shorter problems are dropped.
      max_chars: longer problems are dropped; about 3.5 characters make a token.
      max_answer_chars: longer answers are dropped.
    """

    def too_short(row: Row) -> str | None:
        """Too short to be a whole question."""
        size = len(row.problem)
        return f"{size} characters" if size < min_chars else None

    def too_long(row: Row) -> str | None:
        """Longer than a prompt may be."""
        size = len(row.problem)
        return f"{size} characters" if size > max_chars else None

    def answer_too_long(row: Row) -> str | None:
        """Longer than a rule checks reliably."""
        size = max(map(len, row.answers), default=0)
        return f"{size} characters" if size > max_answer_chars else None

    return {
        "too_short": too_short,
        "too_long": too_long,
        "no_question": no_question,
        "answer_leak": answer_leak,
        "answer_too_long": answer_too_long,
        "free_text_answer": free_text_answer,
        "symbol_answer": symbol_answer,
        "answer_mismatch": answer_mismatch,
        "left_open": left_open,
        "printed_double": printed_double,
    }


def no_question(row: Row) -> str | None:
    """Nothing is asked."""
    return None if _QUESTION.search(row.problem) else "ends: " + row.problem[-40:]


def answer_leak(row: Row) -> str | None:
    """The problem states its own answer."""
    match = _LEAK.search(row.problem)
    if match:
        return " ".join(row.problem[match.start() : match.end() + 30].split())
    boxed = re.search(r"\\boxed\s*\{\s*[^}\s_?\\]", row.problem)
    if boxed and any("boxed{" + answer + "}" in row.problem for answer in row.answers):
        return row.problem[boxed.start() : boxed.start() + 40]
    last = re.split(r"(?<=[.?!])\s+(?=[A-Z])", row.problem)[-1].rstrip(_STATEMENT_END)
    for answer in row.answers:
        digits = re.fullmatch(r"-?\d+\.\d{5,}|-?\d{8,}", answer)
        if digits and answer in row.problem:
            return answer
        before = last.removesuffix(answer)
        if before != last and _STATED.search(before) and not _ASKS.search(last):
            return last[-60:]
    return None


def free_text_answer(row: Row) -> str | None:
    """Prose that no rule can compare: words, unless the problem names the one word."""
    said = {word.lower() for word in _PROSE.findall(row.problem)}
    for answer in row.answers:
        if _PROPOSITION.match(answer):
            return answer[:60]
        prose = [
            word
            for word in _PROSE.findall(_COMMAND.sub(" ", answer))
            if word.lower() not in _PLAIN_WORDS and not word.isupper()
        ]
        mixed = len(prose) == 1 and re.search(r"\d", answer)
        if len(prose) > 1 or mixed or any(word.lower() not in said for word in prose):
            return answer[:60]
    return None


def symbol_answer(row: Row) -> str | None:
    """Names of letters: symbols repeated, an option, a variable that nothing names."""
    for answer in row.answers:
        match = _SYMBOLS.fullmatch(answer)
        if not match or answer in _CONSTANTS:
            continue
        letter, others = match.groups()
        named = re.search(rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])", row.problem)
        if others or letter.isupper() or not named:
            return answer
    return None


def answer_mismatch(row: Row) -> str | None:
    """A name is asked for, and the answer is a number."""
    match = _ASKS_NAME.search(row.problem)
    if match and re.fullmatch(r"-?[\d.,/]+(?:\\?%)?", row.answer):
        return " ".join(match[0].split())[:60]
    return None


def left_open(row: Row) -> str | None:
    """The question turns on an amount that is not given."""
    return found(_LEFT_OPEN, row.problem)


def printed_double(row: Row) -> str | None:
    """A program worked the problem out backwards and printed a rounded number."""
    return found(_PRINTED_DOUBLE, row.problem)
