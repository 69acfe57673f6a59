"""Mathematical text as keys, tokens and n-grams, blind to how it was typeset."""

import re
import unicodedata

_SPACING = re.compile(
    r"\\(?:left|right|displaystyle|limits|[bB]igg?[lr]?|q?quad|,|;|:|!|\(|\)|\[|\]| )"
    r"(?![a-zA-Z])"
    r"|[$~]|\\\\"
)
_SYNONYMS = (
    (re.compile(r"\\[dtc]frac\b"), r"\\frac"),
    (re.compile(r"\\dbinom\b|\\tbinom\b"), r"\\binom"),
    (re.compile(r"\\(?:leqslant|leq)\b"), r"\\le"),
    (re.compile(r"\\(?:geqslant|geq)\b"), r"\\ge"),
    (re.compile(r"\\[lc]?dots\b|…"), "..."),
    (re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|rm|bf|it|mbox)\b"), " "),
    (re.compile(r"<=|≤"), r"\\le "),
    (re.compile(r">=|≥"), r"\\ge "),
    (re.compile(r"[×]"), r"\\times "),
    (re.compile("[‘’′]"), "'"),
    (re.compile("[−–—]"), "-"),
)
_TOKEN = re.compile(r"\\[a-z]+|[^\W\d_]+|\d+(?:\.\d+)?|[^\s\w{}]")
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def tokens(text: str) -> list[str]:
    """Words, numbers, TeX commands and symbols in order, without typesetting.

    >>> tokens(r"Find $\\dfrac{1}{2}\\,x$.")
    ['find', '\\\\frac', '1', '2', 'x', '.']
    """
    text = unicodedata.normalize("NFKC", text).lower()
    text = _SPACING.sub(" ", text)
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    return _TOKEN.findall(text)


def exact_key(text: str) -> str:
    """The text that two exact duplicates share: tokens without sentence punctuation.

    Signs and operators stay, so `x + 3` and `x - 3` differ.
    """
    return " ".join(t for t in tokens(text) if t not in ".,;:?!\"'*`_")


def shingles(parts: list[str], size: int = 3) -> frozenset[str]:
    """The set of `size` consecutive tokens; one short shingle for shorter texts."""
    count = max(1, len(parts) - size + 1)
    return frozenset(" ".join(parts[i : i + size]) for i in range(count))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union, 0 for two empty sets."""
    union = len(left | right)
    return len(left & right) / union if union else 0.0


def word_ngrams(text: str, size: int = 13) -> list[str]:
    """Runs of `size` lower-case alphanumeric words, as in the usual contamination check."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    return [" ".join(words[i : i + size]) for i in range(len(words) - size + 1)]


def numbers(text: str) -> tuple[str, ...]:
    """All numbers of the text, sorted; equal for a problem and its rewording."""
    return tuple(sorted(_NUMBER.findall(text)))
