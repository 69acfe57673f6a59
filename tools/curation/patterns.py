"""Regular expressions as readable lists."""

import re


def any_of(*alternatives: str, flags: int = re.I) -> re.Pattern:
    """One pattern that matches where any alternative does; spaces stand for `\\s+`.

    A literal space in an alternative matches any run of white space, so that line
    breaks in the text do not hide a phrase.
    """
    return re.compile(
        "|".join(f"(?:{_flexible(alternative)})" for alternative in alternatives), flags
    )


def snippet(text: str, match: re.Match, before: int = 15, after: int = 30) -> str:
    """The match with a little context, on one line."""
    start, end = max(0, match.start() - before), match.end() + after
    return " ".join(text[start:end].split())


def found(pattern: re.Pattern, text: str) -> str | None:
    """A snippet around the first match, or None."""
    match = pattern.search(text)
    return snippet(text, match) if match else None


def _flexible(alternative: str) -> str:
    return re.sub(r"(?<![\[\\]) (?![?*+\]])", r"\\s+", alternative)
