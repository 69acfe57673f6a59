"""Is it one question, or several under (1), (2), ...?

Labels are not enough: `f(1) + f(2)` is a value, and `(1) a < b; (2) b < c` after
"satisfying" are conditions of one question. What tells parts apart is who asks: either
the first labelled segment asks something itself, or the words before it ask for each of
what follows ("Calculate:", "Find the probability that:"). Two blanks to fill, or "the
area and the perimeter" to find, are two questions as well, unless the answer has both.
"""

import re
from collections.abc import Sequence

from tools.curation.patterns import any_of, found

_LETTERED = (("1", "2"), ("a", "b"), ("i", "ii"), ("I", "II"))
_CIRCLED = (("①", "②"), ("ⅰ", "ⅱ"))
_TWO_LABELS = re.compile(
    "|".join(rf"\({one}\).*\({two}\)" for one, two in _LETTERED), re.S
)
# School papers number their parts, and nothing else, with these.
_ROMAN_SIGNS = re.compile("Ⅰ.*(Ⅱ.{0,59})", re.S)
_BRACKETED = r"\\*\(?\$*\(\s*LABEL\s*\)|(?:^|\n)[ \t]*LABEL\)(?=\s)"
_NUMBERED = r"(?:^|\n)[ \t]*LABEL[.)](?=\s)"
_NAMED = r"\b[Pp]art LABEL\b"
_FAMILIES = (
    *((_BRACKETED, *pair) for pair in _LETTERED),
    *(("LABEL", *pair) for pair in _CIRCLED),
    (_NUMBERED, "1", "2"),
    (_NAMED, "A", "B"),
)
# A value of a function or a reference back to a part is not a label.
_NOT_LABEL = re.compile(
    r"(?:[A-Za-z0-9_})'\]|]|\\[A-Za-z]+\s*|(?<![A-Za-z])[A-Za-z]\s*"
    r"|\b(?:of|in|from|by|parts?|conditions?|equations?|steps?|case|and|or|with|than"
    r"|using|statements?|propositions?|results?|to|both)\s*\$?\s*)$"
)
_ASK_WORDS = (
    r"find|determine|calculate|compute|evaluate|simplify|solve|prove|show|what|which|how"
    r"|write|express|estimate|identify|factor(?:ize)?|expand|state|explain|describe|give"
    r"|judge|discuss|seek|please|draw|list|complete|fill|convert|verify|when|where|who"
    r"|is|are|does|do|can|guess|translate|try|conjecture|directly|use|point out|predict"
)
_BLANK = r"_{2,}|(?:\\_\s*)+"
# Not the subscript of `a\_1`.
_BLANK_TO_FILL = re.compile(r"_{2,}|(?:\\_\s*){2,}")
_SAYS_SOMETHING = re.compile(r"[A-Za-z]{2,}|[=,;，；]")
# "Find the area and the perimeter of", but not "find the sum of the length and width".
_WORD = (
    r"(?:(?!(?:of|between|by|from|in|on|at|to|for|with|that|such|which|whose|where|sum"
    r"|product|necessary|justify|explain)\b)[a-z]+ )"
)
_MATH = r"(?:\$[^$]+\$|\\+\((?:(?!\\+\))[^$])+\\+\))"
_FIND = r"[Ff]ind|[Dd]etermine|[Cc]alculate|[Cc]ompute"
_BOTH_ASKED = any_of(
    rf"\b(?:{_FIND}) (?:the values? of )?{_MATH},? and {_MATH}[.?\s]*$",
    rf"\b(?:{_FIND}|[Ee]stimate) (?:both )?(?:the|its|their) "
    rf"{_WORD}{{1,3}}and (?:(?:the|its|their) )?{_WORD}{{0,3}}"
    r"(?!sufficient|justify|explain|prove)[a-z]+(?=[\s.,?]|$)"
    r"(?![^.?]*\b(?:sum|product|difference|ratio|relation\w*|their)\b)",
    r"\b(?:maximum|minimum) and (?:the )?(?:maximum|minimum) values? [^.?]* need to be"
    r" determined",
    r"\b[Hh]ow many of each (?:coin|type)\b",
    r"\b[Hh]ow (?:many|much|long)\b(?:(?!\b(?:if|when|together)\b)[^.?])*"
    r"\beach of them\b(?:(?!\b(?:if|when)\b)[^.?])*"
    r"\b(?:alone|separately|individually|by (?:him|her|it)self)\b",
    r"\b[Ww](?:hich|hat) digits\b[^.?]*\bplaces? of\b[^.?]* and\b",
    r"\b(?:[Ff]ind|[Dd]etermine|[Cc]alculate)\b[^.?]{0,20}\bhow (?:many|much)\b[^.?]*"
    r"\band how (?:many|much)\b",
    r"\bfor each\b[^.?]* and (?:determine|find|calculate)\b",
    flags=0,
)
_SEVERAL_VALUES = re.compile(r"[,;，；±]|\\pm|\\leq?\b|<|\b(?:and|or)\b")
_ASKS = any_of(rf"(?<![A-Za-z\\])(?:{_ASK_WORDS})\b", r"\?", _BLANK)
_OPENS_WITH_ASK = re.compile(
    r"^[\s.:$*\\)]*(?:please |then |also |next |directly |now )?"
    rf"(?:{_ASK_WORDS})\b",
    re.I,
)
_COMMANDS = (
    r"find|determine|calculate|compute|evaluate|simplify|solve|prove|show|write|express"
    r"|estimate|identify|factorize|explain|discuss|what|which|how many|how much"
)
_SENTENCE_ASKS = re.compile(
    r"(?:[.,:;!]\s+|\$,?\s+|\n)\s*(?:then |please |and |try to )?"
    rf"(?:{_COMMANDS})\b",
    re.I,
)
# "(1) The smallest number in it is;"
_LEFT_OPEN = re.compile(r"(?:\b(?:is|are)|=)\s*\$?\s*[;:.,]?\s*$")
# "Find:", "Calculate the values of the following expressions:"
_STEM_IS_ASK = re.compile(
    r"(?:^|[.;,]\s*|\b(?:and|then|please|to)\s+)"
    r"(?:find|calculate|compute|evaluate|simplify|solve|determine|seek|answer|complete"
    r"|factor|expand)"
    r"(?: (?:each of )?the (?:(?:values?|probability|probabilities) of (?:each of )?"
    r"the )?following[\w\s]*)?\s*[:：]\s*$",
    re.I,
)
# "Choose one of the conditions, and find:"
_STEM_ENDS_ASKING = re.compile(
    r"\b(?:find|calculate|compute|evaluate|simplify|solve|determine|seek|answer)"
    r"\s*[:：]\s*$",
    re.I,
)
_STEM_ASKS_EACH = re.compile(
    r"(?:^|[.;,:\n]|\band\b|\bplease\b|\bthen\b|\brequired to\b)\s*"
    r"(?:please\s+|try to\s+)?(?:calculate|compute|evaluate|simplify|solve|find"
    r"|determine"
    r"|expand|factor(?:ize)?|prove|answer|complete|fill|seek|write)\b[^?]*$",
    re.I,
)
# "How many arrangements are there if:", "... under the following conditions?"
_EACH_CASE = re.compile(
    r"(?:\b(?:under|for|in|with|according to) (?:each of )?the following\b[^.?]*[?:.]*"
    r"|\bif|\bwhen|\bto be|\bprobability that|\bcan be formed)\s*[?:,.-]*\s*$",
    re.I,
)
_EACH_CASE_ASKS = any_of(
    r"\bhow many\b",
    r"\bprobability\b",
    r"\bwhat (?:values?|is)\b",
    r"\b(?:calculate|find|determine)\b",
)
_CONDITIONS = re.compile(
    r"\b(?:satisf\w*|such that|propert\w*|conditions?|rules?|constraints?|criteri\w*"
    r"|statements?|propositions?|conclusions?|operations?|axioms?|facts?|information"
    r"|procedure|steps|moves?|inequalities|requirements|assumptions|hold|if and only if"
    r"|defined|called|observations|clues|sequence)\b[^.?]{0,80}\.?$",
    re.I,
)
_HEADED = re.compile(
    r"(?:^|\n|[.;:?]\s)\s*\**(?:part|question|problem|subproblem)\s*"
    r"\(?(?:1|a|i)\)?\s*[.:)*].*?(?:part|question|problem|subproblem)\s*"
    r"\(?(?:2|b|ii)\)?\s*[.:)*]"
    r"|\*\*p\d\.\*\*.*\*\*p\d\.\*\*",
    re.I | re.S,
)


def multiple_parts(problem: str) -> str | None:
    """The first words of the second part of a several-part problem, or None."""
    headed = _HEADED.search(problem)
    if headed:
        return headed[0][-40:]
    signs = _ROMAN_SIGNS.search(problem)
    if signs:
        return signs[1]
    for pattern, first, second in _FAMILIES:
        one = _label(problem, pattern, first, 0)
        two = one and _label(problem, pattern, second, one.end())
        if two and _are_parts(
            problem[: one.start()],
            problem[one.end() : two.start()],
            problem[two.end() :],
        ):
            return problem[two.start() : two.start() + 60]
    return None


def two_labels(problem: str) -> str | None:
    """Where a (1) and a later (2) stand, whatever they label, or None."""
    match = _TWO_LABELS.search(problem)
    return match and match[0][:60]


def several_values(problem: str, answers: Sequence[str]) -> str | None:
    """Where a second value is asked for that no answer gives, or None."""
    if any(map(_SEVERAL_VALUES.search, answers)):
        return None
    for between in _BLANK_TO_FILL.split(problem)[1:-1]:
        if _SAYS_SOMETHING.search(between):
            return between[-60:] + "__"
    return found(_BOTH_ASKED, problem)


def _label(problem: str, pattern: str, label: str, start: int) -> re.Match | None:
    """The next place where a label really labels."""
    compiled = re.compile(pattern.replace("LABEL", re.escape(label)))
    for match in compiled.finditer(problem, start):
        before = problem[: match.start()]
        own_line = match[0].startswith("\n") or before.endswith("\n")
        if own_line or pattern == "LABEL" or not _NOT_LABEL.search(before[-40:]):
            return match
    return None


def _are_parts(stem: str, first: str, rest: str) -> bool:
    """Whether what stands before, under and after the first label makes them parts."""
    if not stem.strip():
        return True
    stem = stem.rstrip(" \n$\\(-*")
    tail = re.split(r"(?<=[.!?])\s+(?!\.$)|\n", stem)[-1]
    if _STEM_ENDS_ASKING.search(tail):
        return True
    if _STEM_IS_ASK.search(tail) and not _CONDITIONS.search(tail):
        return True
    if _segment_asks(first):
        return True
    if _trailing_question(rest):
        return False
    if _EACH_CASE.search(stem) and _EACH_CASE_ASKS.search(tail):
        return True
    if _CONDITIONS.search(tail) or tail.endswith("?"):
        return False
    if tail.endswith(":") and _ASKS.search(tail):
        return True
    return bool(_STEM_ASKS_EACH.search(tail))


def _segment_asks(segment: str) -> bool:
    if segment.rstrip(" \n;.$").endswith("?") or re.search(_BLANK, segment):
        return True
    if _LEFT_OPEN.search(segment):
        return True
    return bool(_OPENS_WITH_ASK.match(segment) or _SENTENCE_ASKS.search(segment))


def _trailing_question(rest: str) -> bool:
    """Whether a new sentence after the last label asks the real question."""
    sentences = re.split(r"\n|(?<=[.;])\s+(?=[A-Z])", rest.strip())[1:]
    return any(
        _ASKS.search(sentence) and not re.match(r"\s*[-*$\\]*\(?\w{1,3}[.)]", sentence)
        for sentence in sentences
    )
