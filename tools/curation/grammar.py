"""The few words that several checks share, and how a pattern is searched for."""

import re

STYLE = r"\\(?:text|textbf|mathrm|mathbf|textrm|bf|rm|mbox)"
"""TeX that only sets letters in a style."""

AUXILIARY = "(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have)"
"""What makes a sentence of words: it states, or asks when it stands first."""

FIND = "(?:find|determine|compute|calculate|estimate|evaluate|solve)"

BLANK = r"_{2,}|(?:\\_\s*){2,}"


def any_of(*alternatives: str, flags: int = re.I) -> re.Pattern:
    """One pattern that matches where any alternative does; spaces stand for `\\s+`.

    A literal space in an alternative matches any run of white space, so that line
    breaks in the text do not hide a phrase.
    """
    return re.compile(
        "|".join(
            re.sub(r"(?<![\[\\]) (?![?*+\]])", r"\\s+", f"(?:{alternative})")
            for alternative in alternatives
        ),
        flags,
    )


ASKS = any_of(
    r"\?",
    rf"(?<![a-z\\])(?:{FIND}|what|how|simplify|express|convert"
    r"|factor(?:i[sz]e)?|expand|write|enter|round|rationali[sz]e|list|prove|show|name"
    r"|divide|specify|place|count|represent|choose|select|identify|derive|obtain)\b",
    r"\bbe (?:found|determined|calculated)\b",
    BLANK,
)
"""What asks, whatever it asks for."""

FORMULA = re.compile(r"\$+([^$]+)\$+|\\+\((.+?)\\+\)|\\+\[(.+?)\\+\]", re.S)

# What asks for the last formula, or orders to work out the only one; after it nothing.
_ASKS_FOR = re.compile(
    r"(?:\A\W*(?:simplify|expand|factor|multiply|divide|distribute|add|subtract)"
    r"|(?:\A|(?<!\bto)[^\w-])(?:find|what is|then|determine|calculate|compute|evaluate"
    r"|solve))(?: the)?(?: (?:exact )?(?:value of|equation|expression|product|quotient)"
    r"| for)?(?: the)?(?: expression)?[\s:$]*\Z",
    re.I,
)
_NO_MORE = re.compile(r"(?:[\s.?:=_$]|\\_|\\q?quad|\b(?:is|equals?)\b)*", re.I)

_SENTENCE_BREAK = re.compile(r"(?<=[.?!])\s+(?=[A-Z\\$])")


def formulas(text: str) -> list[str]:
    """What stands in dollars or in TeX's brackets."""
    return [next(filter(None, found)).strip() for found in FORMULA.findall(text)]


def asked_formula(text: str) -> tuple[str, str] | None:
    """The last formula, where nothing but it is asked for and nothing follows.

    Returns:
      (the words that ask, the formula), or None.
    """
    *_, last = None, *FORMULA.finditer(text)
    if not last or not _NO_MORE.fullmatch(text[last.end() :]):
        return None
    asks = _ASKS_FOR.search(text[: last.start()])
    formula = formulas(last[0])[0].strip(" .,=")
    return (asks[0], formula) if asks else None


def sentences(text: str) -> list[str]:
    """The sentences of a text, at least one."""
    return _SENTENCE_BREAK.split(text.strip())


def found(pattern: re.Pattern, text: str) -> str | None:
    """The first match with a little context, on one line, or None."""
    match = pattern.search(text)
    if match is None:
        return None
    return " ".join(text[max(0, match.start() - 15) : match.end() + 30].split())
