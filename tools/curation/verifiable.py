"""Has the question one answer that a rule can check?"""

import re

from rl.verifier.units import parse_unit
from tools.curation import choice
from tools.curation.grammar import (
    ASKS,
    AUXILIARY,
    BLANK,
    FIND,
    STYLE,
    any_of,
    found,
    sentences,
)
from tools.curation.row import Row

# An order: at the start of a sentence or a clause.
_ORDER = r"(?:^|[.!?;:,)\]$\n’\"]\s*|\b(?:and|then|also|or|please|hence|thus) )"
_PROOF = any_of(
    rf"{_ORDER}prove\b(?! your)",
    rf"{_ORDER}(?:show|demonstrate)\b[^.?]{{0,60}}\b(?:that|by|if)\b",
    r"\b(?-i:Prove|Show) that\b",
)
_MANY_ANSWERS = any_of(
    # of several that would do, one
    r"\b(?:find|give|write|add|fill in|provide|choose)\b[^.?]{0,20}?"
    r" (?:an?|any|one|some) (?:(?:possible|of the|of these) )?(?:\w+ ){0,2}"
    r"(?:example|conditions?|basis|fundamental set|value\b[^.?]*\b(?:that|such))\b",
    r"\b(?:only|write(?: down)?) one (?:possible )?(?:value|answer)\b|\bfill in one\b",
    # of an amount that is not given
    r"\bhow (?:many|much|long)\b[^.?]*\ba certain (?:mass|number|amount|length)\b"
    r"[^.?]*\?$",
    r"\bsome expression\b",
    # scored by its distance
    r"\byour score (?:will|for|on)\b|\bestimate (?:of )?\$[A-Z]",
)
_EITHER_OR = re.compile(
    rf"\W*(?:{STYLE}\s*\{{)?\s*(?:it is )?(?:not )?(?:yes|no|true|false|correct|right"
    r"|wrong|possible|impossible|always|never|sometimes|cannot|not|√|×"
    r"|(?:absolutely |conditionally )?(?:con|di)verge(?:s|nt))\b\W*"
    r"(?:[,.;].*)?",
    re.I | re.S,
)
# The last sentence, where nothing but yes or no answers it.
_EITHER_OR_QUESTION = re.compile(
    rf"(?:(?=[A-Z])(?i:{AUXILIARY})|(?:If|Given|When)\b[^?]*,\s*(?:then )?{AUXILIARY})"
    r"\b(?!\s+not?\b)[^?]*\?\s*"
)
_WHETHER = any_of(
    r"\A\W*(?:determine|decide|state|tell|check|say) (?:whether|if)\b"
    rf"(?![^?]*\b(?:what|how|which|{FIND})\b)"
)
_ASKS_VALUE = any_of(rf"\b(?:what|which|how|who|where|when|why|{FIND})\b", BLANK, "=")

# A first and a second label of one kind, in brackets or at the start of a line.
_LABELS = (r"(?<![A-Za-z0-9}'])\(%s\)", r"(?:(?m:^)|\*\*)[ \t*#]*%s[.)]\**\s")
_TWO_LABELS = re.compile(
    r"①.*(②)|[Ⅰⅰ].*([Ⅱⅱ])|"
    + "|".join(
        f"{label % one}.*({label % two})"
        for one, two in map(str.split, "1 2|a b|A B|i ii|I II".split("|"))
        for label in _LABELS
    ),
    re.S,
)
_QUESTION = re.compile(
    r"(?:^|[,;] (?:then |and )?|^(?:and|then|also|or),? )"
    r"(?:(?:in|at|to|by|of|on|for) )?"
    r"(?!what about)(?:what|how|which|who|when|where)\b[^?]*\?\W*$",
    re.I,
)
_SAYS_SOMETHING = re.compile(r"[A-Za-z]{2,}|[=,;，；]")
_MATH = r"(?:\$[^$]+\$|\\+\((?:(?!\\+\))[^$])+\\+\))"
# "The sum of the two" and "between the two" are one thing.
_JOINT = r"sum|product|difference|total|relation|of\b|between"
# "Find the area and the perimeter of", but not "find the sum of the length and width".
_BOTH_ASKED = any_of(
    rf"\b{FIND} (?:the values? of )?{_MATH},? and {_MATH}[.?\s]*$",
    rf"\b{FIND} (?:both )?(?:the|its|their) (?:(?!{_JOINT})[a-z]+,? ){{1,4}}and"
    r" (?:(?:the|its|their) )?(?!justify|explain|prove)(?:[a-z]+ ){0,3}?[a-z]+"
    r"(?: of\b|[.?\s]*$)(?![^.?]*\b(?:sum|product|difference|ratio|their)\b)",
)
_SEVERAL_VALUES = re.compile(r"[,;，；±]|\\pm|\\leq?\b|<|\b(?:and|or)\b")

# `r, h`, `(B)`, or one letter in whatever stands around it.
_SYMBOLS = re.compile(
    rf"\$?(?:{STYLE}\s*\{{)?\(?([A-Za-z])\)?\}}?"
    r"((?:(?:\s*,\s*|\s+and\s+|\s+)[A-Za-z])*)[$.]*"
)
_CONSTANTS = "ei"
_NAMES = re.compile(r"(?<![A-Za-z])(?:[A-Za-z]|[A-Z]+)(?![A-Za-z])")
# `k` of `arctan x + k`, no coordinate, function, unit or "a.m."; not that of a period.
_FREE = re.compile(r"(?<![A-Za-z\\\d~{.])(?<!\d )([a-df-hj-w])(?![A-Za-z}.]|\s*\()")
_PERIODIC = re.compile(r"\\pi(?![a-z])|π|\\circ|°")
_COMMAND = re.compile(
    rf"\\(?:begin|end)\s*\{{[^}}]*\}}(?:\{{[lcr|]*\}})?|{STYLE}\s*\{{|\\+(?:[A-Za-z]+|\W)"
)
_PROSE = re.compile(r"[A-Za-z]{3,}")
_AMOUNT = r"[-\d.,/\s{}()]*"
_QUANTITY = re.compile(
    rf"{_AMOUNT}\d{_AMOUNT}([A-Za-z][A-Za-z^-]*\d?(?:[\s/]+[A-Za-z^-]+\d?){{0,2}})[}}.\s]*"
)
_PROPOSITION = re.compile(r"\W*if\b.*\bthen\b", re.I | re.S)
_PLAIN_WORDS = frozenset(
    "and for where when any all real number numbers integer integers odd even positive"
    " negative with the such that per min max mod sin cos tan log arcsin arccos arctan"
    " first second third fourth".split()
)


def no_answer(row: Row) -> str | None:
    """Neither an answer field nor a box in the solution."""
    return None if row.answers else "no answer, and none in the solution"


def proof(row: Row) -> str | None:
    """A statement to prove."""
    return found(_PROOF, row.problem)


def open_question(row: Row) -> str | None:
    """Many right answers, or a guess scored by its distance."""
    return found(_MANY_ANSWERS, row.problem)


def yes_no(row: Row) -> str | None:
    """True or false, yes or no: a coin gets half of them right."""
    if any(_EITHER_OR.fullmatch(answer) for answer in row.answers):
        return row.answer
    last = sentences(row.problem)[-1]
    asked = _EITHER_OR_QUESTION.fullmatch(last) and not _ASKS_VALUE.search(last[4:])
    return last[-60:] if asked or _WHETHER.search(last) else None


def multi_part(row: Row) -> str | None:
    """Several questions, of which the answer covers one.

    Two labels of one kind count as parts whatever they label, unless the only thing
    that asks comes in a sentence of its own after them: then they are conditions. Two
    blanks to fill, two sentences that ask, or "the area and the perimeter" to find, are
    two questions as well, unless the answer has both.
    """
    match = _TWO_LABELS.search(row.problem)
    if match:
        second = match.start(match.lastindex)
        *labelled, last = sentences(row.problem[second:])
        stated = [row.problem[:second], *labelled]
        if not labelled or any(map(ASKS.search, stated)) or not ASKS.search(last):
            return row.problem[second:][:60]
    if any(map(_SEVERAL_VALUES.search, row.answers)):
        return None
    for between in re.split(BLANK, row.problem)[1:-1]:
        if _SAYS_SOMETHING.search(between):
            return between[-60:] + "__"
    asked = {said for said in sentences(row.problem) if _QUESTION.search(said)}
    if len(asked) > 1:
        return max(asked, key=row.problem.rindex)[-60:]
    return found(_BOTH_ASKED, row.problem)


def multiple_choice(row: Row) -> str | None:
    """Options remain: nothing but the letter, or the list itself, tells the answer."""
    if any(choice.is_choice_answer(answer) for answer in row.answers):
        return f"answer {row.answer}"
    if choice.find_choices(row.problem) is not None:
        return "lettered options"
    return None


def free_text_answer(row: Row) -> str | None:
    """Prose that no rule can compare: words, unless the problem names the one word."""
    said = {word.lower() for word in _PROSE.findall(row.problem)}
    for answer in row.answers:
        plain = _COMMAND.sub(" ", answer)
        quantity = _QUANTITY.fullmatch(plain.strip())
        if quantity and parse_unit(quantity[1]):
            continue
        prose = [
            word.lower()
            for word in _PROSE.findall(plain)
            if not (word.lower() in _PLAIN_WORDS or word.isupper() or _is_unit(word))
        ]
        mixed = len(prose) == 1 and re.search(r"\d", answer)
        known = all(word.endswith(tuple(said)) for word in prose)
        if len(prose) > 1 or mixed or not known or _PROPOSITION.match(answer):
            return answer[:60]
    return None


def _is_unit(word: str) -> bool:
    """Whether the verifier knows it as a unit, and not as some word behind a number."""
    reading = parse_unit(word.lower())
    return reading is not None and isinstance(reading.unit, str)


def symbol_answer(row: Row) -> str | None:
    """Names of letters: symbols repeated, an option, a name that the problem lacks."""
    text = _COMMAND.sub(" ", re.sub(r"\\+[()[\]]", "$", row.problem))
    named = {*"".join(re.split(r"\$+", text)[1::2] + _NAMES.findall(text)).lower()}
    for answer in row.answers:
        match = _SYMBOLS.fullmatch(answer)
        option = match and (match[2] or match[1].isupper() or match[1] not in named)
        label, _, value = answer.rpartition("=")
        free = {*_FREE.findall(value)} - {*label} - named
        if option and answer not in _CONSTANTS or free and not _PERIODIC.search(answer):
            return answer
    return None


CHECKS = {
    "proof": proof,
    "no_answer": no_answer,
    "open_question": open_question,
    "yes_no": yes_no,
    "multi_part": multi_part,
    "multiple_choice": multiple_choice,
    "free_text_answer": free_text_answer,
    "symbol_answer": symbol_answer,
}
