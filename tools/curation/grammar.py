"""Defines regular expressions and text functions that several checks share."""

import re

# TeX commands that only change the font of their argument
STYLE = r"\\(?:text|textbf|mathrm|mathbf|textrm|bf|rm|mbox)"
# verbs at the start of a question
AUXILIARY = "(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have)"
# imperatives that ask for a value
FIND = "(?:find|determine|compute|calculate|estimate|evaluate|solve)"
BLANK = (  # to fill in
    r"\[ANS\]|_{2,}|(?:\\_\s*){2,}|\\u(?:nder)?line\s*\{[\s~\\]*\}|\$\s*\\qquad\s*\$"
)


def any_of(*alternatives: str) -> re.Pattern:
    """Compiles alternatives into a pattern that ignores case; a space means `\\s+`.

    A space stays a space after `[` or a backslash, and before `]`, `?`, `*` or `+`.
    """
    return re.compile(
        "|".join(
            re.sub(r"(?<![\[\\]) (?![?*+\]])", r"\\s+", f"(?:{alternative})")
            for alternative in alternatives
        ),
        re.I,
    )


# the start of a clause, where a verb is an imperative and not a noun
ORDER = r"(?:(?:^|[.!?;:,)\]$\n’\"])\s*|\b(?:and|then|also|or|please|hence|thus) )"
QUESTION = any_of(rf"\?|(?<![a-z\\])(?:{FIND}|what|how)\b")  # asks for a value
ASKS = any_of(  # questions, imperatives and blanks to fill in
    QUESTION.pattern,
    rf"(?:{ORDER}|\b(?:to|[a-z]+ly) |[(*}}])(?:simplify|express|convert|choose|select"
    r"|factor(?:i[sz]e)?|expand|write|enter|round|rationali[sz]e|list|prove|show|name"
    r"|divide|specify|place|count|represent|identify|derive|obtain)\b",
    rf"{ORDER}(?:arrange|indicate)\b",
    r"\bbe (?:found|determined|calculated)\b",
    BLANK,
)
FORMULA = re.compile(r"\$+([^$]+)\$+|\\+\((.+?)\\+\)|\\+\[(.+?)\\+\]", re.S)
_ASKING = re.compile(r"\?[\s\\$)\]]*\Z")  # at the end of a formula
# A sentence ends at a full stop before a capital letter or formula, or at a new line. A
# bracket after a final question, such as "(IMO 1988)", is a sentence of its own.
_SENTENCE_BREAK = re.compile(
    r"(?:(?<=[.?!])|(?<=[.?!][$)]))\s+(?=[A-Z\\$])|\n\s*(?=\n|[A-Z])"
    r"|(?<=[?])\s+(?=\([^()]*\)\s*\Z)"
)


def formulas(text: str) -> list[str]:
    """Returns the formulas of a text, without their dollar signs or TeX brackets."""
    return [next(filter(None, found)).strip() for found in FORMULA.findall(text)]


def without_formulas(text: str, name: str = "") -> str:
    """Replaces each formula by `name`.

    If a formula ends with `?`, so does its replacement, unless the text before the
    formula ends with `?`.
    """

    def replacement(formula: re.Match) -> str:
        asked = text[: formula.start()].rstrip().endswith("?")
        return name + "?" * (not asked and bool(_ASKING.search(formula[0])))

    return FORMULA.sub(replacement, text)


def sentences(text: str) -> list[str]:
    """Splits a text into sentences; a blank text gives one empty sentence."""
    return [*filter(str.strip, _SENTENCE_BREAK.split(text.strip()))] or [""]


def found(pattern: re.Pattern, text: str) -> str | None:
    """Returns the first match and the text around it as one line, or None."""
    if match := pattern.search(text):
        return " ".join(text[max(0, match.start() - 15) : match.end() + 30].split())
    return None
