"""Finds problems without a single answer that a rule can check."""

import re

from tools.curation import grammar
from tools.curation.evidence import SOLVED
from tools.curation.grammar import (
    ASKS,
    FORMULA,
    QUESTION,
    any_of,
    found,
    sentences,
    without_formulas,
)
from tools.curation.row import Row
from tools.curation.text import tokens

_PROOF = any_of(
    rf"{grammar.ORDER}prove\b(?! (?:your|it\b|this\b))|\b(?-i:Prove|Show) that\b",
    rf"{grammar.ORDER}(?:show|demonstrate)\b[^.?]{{0,60}}\b(?:that|by|if)\b",
)
_ASKS_TOO = any_of(rf"{grammar.ORDER}{grammar.FIND}\b", r"\b(?:what|how) (?:is|many)\b")
_MANY_ANSWERS = any_of(
    # requests for one of several correct answers
    r"\b(?:find|give|write|add|fill in|provide|choose)\b[^.?]{0,20}?"
    r" (?:an?|any|one|some) (?:(?:possible|of the|of these) )?(?:\w+ ){0,2}"
    r"(?:example|conditions?|basis|fundamental set|element"
    r"|value\b[^.?]*\b(?:that|such))\b",
    r"(?<!to\s)\b(?:give|write|provide)(?: down)? (?:an?|one) (?:[\w-]+ ){0,2}(?:number"
    r"|integer|value|function)\b(?![^.?]{0,12}\b(?:on|as|of)\b|[^.?]*\binclusive\b)",
    r"\bwrite (?:out |down )?(?:the|an?) (?:\w+ ){0,2}(?:expression|formula|equation)s?"
    r"\b(?! of (?:the|a) (?:line|circle|plane|parabola|ellipse|tangent))",
    # questions that a single quantity cannot answer, or scores by distance
    rf"{grammar.ORDER}(?:derive|determine|describe|discuss|characteri[sz]e|investigate)"
    r" the (?:\w+ )?(?:distribution|properties|behaviou?r|nature|structure|position)\b",
    r"\bhow (?:can|could|should|would|might) (?:we|you|one|i|s?he|they|it|the)\b"
    r"(?! (?:be )?(?:many|much)\b)",
    r"\byour score (?:will|for|on)\b|\W(?-i:[A-Z])\W* is the correct answer\b"
    r"|\bif the correct answer is \W*(?-i:[A-Z])\b|\bestimate (?:of )?\$[A-Z]",
)
# Sentences that sets with integer answers append, sometimes instead of the question.
_REWRITTEN = any_of(
    r"(?:\bthe )?(?:original )?answer is (?:in|of)\b.*? the value of [^.?]*[.]?"
)
# Imperatives with a yes-or-no answer: "Determine whether" is "Does".
_WHETHER = re.compile(r"([Dd])etermine (?:whether|if)((?!.*(?:, or|so|give) )[^?]*)\Z")
# Questions with a yes-or-no answer.
_EITHER_OR_QUESTION = re.compile(
    rf"(?:(?=[A-Z])(?i:{grammar.AUXILIARY})"
    rf"|(?:If|Given|When)\b[^?]*,\s*(?:then )?{grammar.AUXILIARY})"
    r"\b(?!\s+(?:not?|you)\b)[^?]*\?\s*"
)
_ASKS_VALUE = any_of(r"\b(?:which|who|where|when|why)\b", r"=[\s$]*\Z", ASKS.pattern)

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
# Text before labels that mark conditions of the question, or objects to count.
_BINDS = any_of(
    r"\b(?:satisf\w+|(?:such|so|known) that|propert(?:y|ies)|conditions (?:\w+ )?hold"
    r"|(?:how many|exactly \w+) of (?:the|these))\b"
    rf"(?:(?!\b{grammar.FIND})[^.?!]){{0,80}}[?:.]?[^\w.?!]*\Z"
)
_ASKS_EACH = any_of(r"\b(?:values? of|what values?|each)\b")

# (A) ... (B) ... (C) anywhere, or A) and A. at the start of an option.
_OPTION = (
    rf"(?<![\w\\])\(\s*(?:{grammar.STYLE}\s*\{{)?%s\}}?\s*(?:\\\s*)?\)",
    r"(?:^|\n|\s\s|[:?.;,$]\s|quad\s*)[-*$\s]{0,8}"
    rf"(?:{grammar.STYLE}\s*\{{)?%s[*$]*[).:]",
)
_OPTIONS = re.compile(
    "|".join(".*".join(label % name for name in "ABC") for label in _OPTION), re.S
)
_OPTIONS_ABSENT = any_of(
    r"(?-i:\bOptions:)", r"\bwhich\b[^.?:]{0,40} following\b[^:?,&]*\?\W*\Z"
)
_CONTENT = re.compile(r"[A-Za-z]{2,}|[=,;，；]")
_MATH = r"(?:\$[^$]+\$|\\+\((?:(?!\\+\))[^$])+\\+\))"
# "The sum of the two" and "between the two" ask for one value.
_JOINT = r"sum|product|difference|total|relation|of\b|between"
# "Find the area and the perimeter of", but not "find the sum of the length and width",
# and "find the radii of the circles", of which a gold gives one.
_BOTH_ASKED = any_of(
    rf"\b{grammar.FIND}(?: (?:all|the|possible|positive|real|natural|integers?|numbers?"
    rf"|values?|lengths?|area|of))* (?:{_MATH},? ?)+and"
    rf" (?:{_MATH}|the (?!{_JOINT})[a-z]+ of [^.?]+)(?: respectively)?"
    r"(?: such that(?:(?! find)[^.?])*)?[.?\s]*$",
    rf"\b(?:{grammar.FIND}|what are) the respective\b",
    r"\bwhat are the [^.?]*\brespectively\b",
    rf"\b{grammar.FIND} the (?:values|increments|lengths|areas|equations) of"
    r" (?:(?!\b(?:and|such|if|for|that)\b)[^.?,]){1,40} and [^.?,]+[.?,]",
    rf"\b{grammar.FIND} the [a-z]+ [^.?]*\band (?:its|their) (?!{_JOINT})[a-z]+"
    r"[.?\s]*$",
    rf"\b{grammar.FIND} (?:both )?(?:(?:the|its|their) (?!{_JOINT})[a-z]+, ){{0,2}}"
    rf"(?:the|its|their) (?:(?!{_JOINT}|that\b)[a-z]{{2,}},? ){{1,2}}and"
    r" (?:(?:the|its|their) )?(?!justify|explain|prove)(?:[a-z]{2,} )?(?:possible )?"
    r"[a-z]{2,}(?: of\b|[.?\s]*$)(?![^.?]*\b(?:sum|product|difference|ratio|their)\b)",
    rf"{grammar.ORDER}(?:{grammar.FIND}|what are) (?:both )?the (?:[a-z]+ )?(?:radii"
    r"|dimensions|lengths(?! of (?:the )?(?:arc|curve)s)|speeds|prices|ages)\b",
    rf"{grammar.ORDER}{grammar.FIND} (?:(?!\b(?:knowing|such|if)\b)[^.?])*"
    r", as well as\b",
)
# Two imperatives, of which a gold answers one: "Find the vertex. Sketch the graph."
_VERB = (
    r"(?:find|determine|compute|calculate|evaluate|solve|sketch|draw|graph|plot|explain"
    r"|describe|justify|discuss|verify|prove|show|list|state|identify|simplify|factor)"
)
_WITHOUT_VALUE = any_of(
    rf"{grammar.ORDER}(?:generali[sz]e|sketch|discuss|describe|graph the)\b"
)
_ORDERS = any_of(rf"{grammar.ORDER}(?:hence |also |then )?{_VERB}\b")
_SECOND_ORDER = any_of(
    rf"{grammar.ORDER}(?:find|determine|compute|calculate|solve|sketch|evaluate)\b"
    rf"[^.?!]*\b(?:and|then)(?: then| hence| also)? {_VERB}\b(?! (?:your|that))"
)
# "How many are there, and what is their sum?", "Also, find the height."
_ASKS_MORE = any_of(
    r"\b(?:what|which|how|who|when|where)\b[^.?!]*\band (?:(?:by|for|from) )?(?:how"
    r"|what|who|when|why|(?:will|can|does|do|did) (?:it|s?he|they|the)\b)[^.?]*\?",
    r"(?:^|[.!?;,\n])\s*(?:also|additionally|furthermore|in addition|after this)\b"
    rf",? {grammar.FIND}\b",
)
_OF_THE_ANSWER = any_of(
    r"\b(?:your|the|final) (?:final )?(?:answer|result)\b|\b(?:decimal|nearest|form)\b"
)
_SEVERAL_VALUES = re.compile(r"[,;，；±]|\\pm|\\leq?\b|<|\\begin|\b(?:and|or)\b")


def proof(row: Row) -> str | None:
    """Finds problems that ask only for a proof, or for the proof of a stated value."""
    proving = [one for one in sentences(row.problem) if _PROOF.search(one)]
    stated = any({*tokens(a)} <= {*tokens(one)} for one in proving for a in row.answers)
    asks_value = row.answers and _ASKS_TOO.search(row.problem) and not stated
    return None if asks_value else found(_PROOF, row.problem)


def open_question(row: Row) -> str | None:
    """Finds problems with many correct answers, partial credit, or no question."""
    own = _REWRITTEN.sub("", row.problem)
    if own != row.problem and not ASKS.search(own):
        return own[-60:]
    return found(_MANY_ANSWERS, row.problem)


def yes_no(row: Row) -> str | None:
    """Finds questions with a yes-or-no answer, whatever the gold is."""
    *_, last = sentences(row.problem)
    parts = sentences(without_formulas(row.problem, "F"))
    orders = [one for one in parts if ASKS.search(one)] or [last]
    asking = [_WHETHER.sub(r"\1oes\2?", one) for one in orders]
    return last[-60:] if _either_or(last) or all(map(_either_or, asking)) else None


def _either_or(sentence: str) -> bool:
    asks_value = _ASKS_VALUE.search(sentence[4:].rstrip("? "))
    return not asks_value and _EITHER_OR_QUESTION.fullmatch(sentence) is not None


def multi_part(row: Row) -> str | None:
    """Finds problems with several questions; the gold often answers only one."""
    match = _TWO_LABELS.search(row.problem)
    if match and not _are_conditions(row.problem, match):
        return row.problem[match.start(match.lastindex or 0) :][:60]
    parts, blanks = sentences(row.problem), re.split(grammar.BLANK, row.problem)
    if others := [one for one in parts[1:] if _WITHOUT_VALUE.search(one)]:
        return others[0][-60:]
    if any(map(_SEVERAL_VALUES.search, row.answers)):
        return None
    asked = [one for one in parts if one[-1:] == "?" and _ASKS_VALUE.search(one[:-1])]
    several = [*filter(_CONTENT.search, blanks[1:-1])]
    several += [one for one in asked if one != asked[0]]
    several += [one for one in parts if _ASKS_MORE.search(FORMULA.sub("F", one))]
    if row.strength < SOLVED:
        several += _second_orders(parts)
    if several:
        return several[0][-60:]
    texts = (row.problem, FORMULA.sub("", row.problem))
    return next(filter(None, (found(_BOTH_ASKED, text) for text in texts)), None)


def _second_orders(parts: list[str]) -> list[str]:
    """Returns sentences that ask for something in addition to the first request."""
    orders = [one for one in parts if _ORDERS.search(one)]
    first = {*tokens(orders[0])} if orders else set()
    other = [
        one
        for one in orders[1:]
        if not _OF_THE_ANSWER.search(one) and len({*tokens(one)} - first) > 3
    ]
    return other + [one for one in orders if _SECOND_ORDER.search(FORMULA.sub("", one))]


def _are_conditions(problem: str, labels: re.Match) -> bool:
    """Returns whether labels such as (a) mark conditions rather than questions."""
    first, second = labels.start(), labels.start(labels.lastindex or 0)
    *_, lead = sentences(problem[:first])
    rest = sentences(problem[second:])
    asking = [i for i, one in enumerate(rest) if ASKS.search(one)]
    if ASKS.search(problem[first:second]) or 0 in asking:
        return False
    if asking and _TWO_LABELS.search("\n".join(rest[asking[0] :])):
        return False
    if (QUESTION if asking else ASKS).search(problem[:first]):
        return bool(_BINDS.search(lead)) and not _ASKS_EACH.search(lead)
    return bool(asking)


def multiple_choice(row: Row) -> str | None:
    """Finds questions with options, also if the options themselves are missing."""
    if match := _OPTIONS.search(row.problem):
        # If a question follows, the letters label persons or conditions, not options.
        last = row.problem[match.end() :]
        _, *after = sentences(" ".join(last.split()))
        if "?" not in last and not any(map(ASKS.search, after)):
            return row.problem[match.start() :][:60]
    return found(_OPTIONS_ABSENT, row.problem)


CHECKS = (proof, open_question, yes_no, multi_part, multiple_choice)
