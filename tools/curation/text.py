"""Computes typesetting-independent tokens, keys and n-grams of mathematical text."""

import hashlib
import re
import unicodedata
import zlib
from collections import Counter

from datasketch import MinHash

NEAR = 0.8  # smallest `similarity` of near duplicates
# Texts of Jaccard similarity s share a band with probability 1 - (1 - s^4)^32.
BANDS, ROWS = 32, 4

_SPACING = re.compile(
    r"\\(?:left|right|displaystyle|limits|[bB]igg?[lr]?|q?quad)(?![a-zA-Z])"
    r"|\\[,;:!()\[\]_ ]|[$~]|\\\\|[_^]\s*\{\s*\}"
    r"|\\(?:begin|end)\{(?:array|cases|aligned?)\*?\}(?:\{[lcr| ]*\})?"
)
_SYNONYMS = (
    (re.compile(r"\\[dtc](frac|binom)(?![a-z])"), r"\\\1"),
    (re.compile(r"\\[lc]?dots\b|…"), "..."),
    (re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|rm|bf|it|mbox)\b"), " "),
    (re.compile(r"\\leq(?:slant)?\b|<=|≤"), r"\\le "),
    (re.compile(r"\\geq(?:slant)?\b|>=|≥"), r"\\ge "),
    (re.compile(r"[×]"), r"\\times "),
    (re.compile("[‘’′]"), "'"),
    (re.compile("[−–—]"), "-"),
)
_SPACED_LETTERS = re.compile(r"(?<![a-z\\])[a-z](?: [a-z])+(?![a-z])")
_TOKEN = re.compile(r"\\[a-z]+|[^\W\d_]+|\d+(?:\.\d+)?|[^\s\w{}]")
_ANSWER_FORM = re.compile(
    r"\b(?:(?:can|may|could) be (?:uniquely )?(?:written|expressed|represented)"
    r"|(?:in|of|as|has|have) the form|not divisible by the square"
    r"|where (?:\w+ ){1,12}?(?:are|is) (?:relatively prime|coprime"
    r"|(?:distinct )?(?:positive )?integers?)"
    r"|(?:express|give|enter|write) your answer)\b"
)
_MARKS = frozenset(".,;:?\"'*`_()[]\\")
_GROUPS = re.compile(r"(?<=\d)(?:,|\{,\}|\\!|\\,)+(?=\d{3}(?!\d))")
_SHORT_FRACTION = re.compile(r"\\([dtc]?frac)\s*(\d)\s*(\d)")
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
NUMBER_WORDS = {word: str(number) for number, word in enumerate(_WORDS)}


def tokens(text: str) -> list[str]:
    """Returns lower-case words, numbers, TeX commands and symbols in order.

    `Find $\\dfrac{1}{2}\\,x$.` becomes `find`, `\\frac`, `1`, `2`, `x`, `.`
    """
    text = unicodedata.normalize("NFKC", text).lower()
    text = _SPACING.sub(" ", text)
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    text = " ".join(text.split())
    # "A B C" and "ABC" are the same triangle.
    text = _SPACED_LETTERS.sub(lambda run: run[0].replace(" ", ""), text)
    return _TOKEN.findall(text)


def exact_key(text: str) -> str:
    """Returns a hash of the tokens without punctuation, equal for exact duplicates."""
    joined = "".join(t for t in tokens(text) if t not in ".,;:?!\"'*`_")
    return hashlib.blake2b(joined.encode(), digest_size=16).hexdigest()


def _shingles(parts: list[str]) -> frozenset[str]:
    """Returns all runs of three tokens; fewer tokens form one run."""
    count = max(1, len(parts) - 2)
    return frozenset(" ".join(parts[i : i + 3]) for i in range(count))


def _skeleton(parts: list[str]) -> list[str]:
    """Returns the tokens without brackets, backslashes and punctuation except `!`.

    `\\sin^2(20^\\circ)` and `sin ^{2} 20^{\\circ}` have the same skeleton.
    """
    return [t.removeprefix("\\") for t in parts if t not in _MARKS]


def band_hashes(text: str) -> list[int]:
    """Returns a 64-bit hash of each band of the text's MinHash signature, `[BANDS]`."""
    sketch = MinHash(num_perm=BANDS * ROWS, hashfunc=zlib.crc32)
    sketch.update_batch(s.encode() for s in _shingles(_skeleton(tokens(text))))
    bands = sketch.hashvalues.reshape(BANDS, ROWS).tolist()
    return [hash((n, *band)) for n, band in enumerate(bands)]


def similarity(left: str, right: str) -> float:
    """Returns the Jaccard similarity of token 3-grams, or of skeletons if larger."""
    words = tokens(left), tokens(right)
    pairs = [map(_shingles, parts) for parts in (words, map(_skeleton, words))]
    return max(len(a & b) / len(a | b) for a, b in pairs)


def word_ngrams(text: str, size: int = 13) -> list[str]:
    """Returns the n-grams of `size` words of a text, in lower case.

    An n-gram must have at least `size // 2` words of three or more letters. The text
    from a phrase such as "express your answer" to the end is ignored.
    """
    text = re.sub(r"\\[a-z]+", " ", unicodedata.normalize("NFKC", text).lower())
    sentence = " ".join(re.findall(r"[^\W_]+", text))
    # Many problems end with the form of the answer ("can be written as m/n ...").
    form = _ANSWER_FORM.search(sentence, len(sentence) // 3)
    words = (sentence[: form.start()] if form else sentence).split()
    is_word = [len(word) > 2 and word.isalpha() for word in words]
    return [
        " ".join(words[i : i + size])
        for i in range(len(words) - size + 1)
        if sum(is_word[i : i + size]) >= size // 2
    ]


def numbers(text: str) -> Counter:
    """Counts each number in a text; numbers up to twelve may be words."""
    text = _SHORT_FRACTION.sub(r"\\\1{\2}{\3}", _GROUPS.sub("", text))
    found = (NUMBER_WORDS.get(token, token) for token in tokens(text))
    return Counter(token for token in found if token[0].isdigit())
