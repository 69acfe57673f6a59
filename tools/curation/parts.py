"""Is it one question, or several under (1), (2), ...?

Two labels of one kind count as parts whatever they label: numbered conditions are lost
with them, a share of a percent, since what tells them apart is only who asks. Two
blanks to fill, or "the area and the perimeter" to find, are two questions as well,
unless the answer has both.
"""

import re
from collections.abc import Sequence

from tools.curation.patterns import any_of, found

_KINDS = (
    *(
        rf"(?<![A-Za-z0-9}}'])\({one}\).*(?<![A-Za-z0-9}}'])(\({two}\))"
        for one, two in ("12", "ab", "AB", ("i", "ii"), ("I", "II"))
    ),
    r"①.*(②)",
    r"[Ⅰⅰ].*([Ⅱⅱ])",
    *(
        rf"(?:^|\n)[ \t*#]*{one}[.)]\s.*\n[ \t*#]*({two}[.)])\s"
        for one, two in ("12", "ab", "AB")
    ),
    r"\b(?:[Pp]art|[Qq]uestion|[Pp]roblem) \(?[1Aa]\b"
    r".*((?:[Pp]art|[Qq]uestion|[Pp]roblem) \(?[2Bb]\b)",
    r"\*\*\(?[Pp]?[1a][.)].*(\*\*\(?[Pp]?[2b][.)])",
)
_TWO_LABELS = re.compile("|".join(_KINDS), re.S)
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


def two_labels(problem: str) -> str | None:
    """The words from a second label on, whatever the two label, or None."""
    match = _TWO_LABELS.search(problem)
    return match and problem[match.start(match.lastindex) :][:60]


def several_values(problem: str, answers: Sequence[str]) -> str | None:
    """Where a second value is asked for that no answer gives, or None."""
    if any(map(_SEVERAL_VALUES.search, answers)):
        return None
    for between in _BLANK_TO_FILL.split(problem)[1:-1]:
        if _SAYS_SOMETHING.search(between):
            return between[-60:] + "__"
    return found(_BOTH_ASKED, problem)
