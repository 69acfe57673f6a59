"""Removes the head and the tail that most rows of a set have around the problem.

An example is an instruction on the form of the answer. Text of a single row is kept,
because it may be part of the problem.
"""

import re
from collections import Counter
from collections.abc import Sequence

from tools.curation.grammar import ASKS, FIND, FORMULA, any_of

_FEW = 10  # minimum number of rows to find shared text
_REACH = 1000  # maximum length of a head or a tail, in characters
_BREAK = re.compile(r"[.:!?)\]}](?=\s)|\n+")
# Phrases that a tail may have: an example of a box, and "solve this" or "find it".
_ABOUT_IT = any_of(r"\\boxed\s*\{[^{}]*\}", rf"\b{FIND} (?:this|it|the problem)\b")


def unwrap(problems: Sequence[str]) -> list[str]:
    """Returns the problems of a set without their shared head and tail."""
    head, tail = (_shared(problems, tail=tail) for tail in (False, True))
    texts = (text.strip() for text in problems)
    return [t.removeprefix(head).removesuffix(tail).strip() for t in texts]


def most(some: int, rows: int) -> bool:
    """Returns whether `some` is more than half of `rows`; False for under 10 rows."""
    return rows >= _FEW and 2 * some > rows


def _ends(text: str, tail: bool) -> set[str]:
    text = text.strip()
    breaks = [match.end() for match in _BREAK.finditer(text)]
    if tail:
        return {text[i:].strip() for i in breaks if len(text) - i <= _REACH}
    return {text[:i].strip() for i in breaks if i <= _REACH}


def _shared(problems: Sequence[str], *, tail: bool) -> str:
    """Returns the longest removable head or tail that most problems share, or "".

    A head is removable if most problems still ask for something without it. A tail is
    removable if it asks for nothing and has no digit, apart from an example of a box
    and phrases such as "solve this".
    """
    count = Counter(end for text in problems for end in _ends(text, tail))
    common = [end for end, n in count.items() if end and most(n, len(problems))]
    for end in sorted(common, key=len, reverse=True):
        content = _ABOUT_IT.sub("", end)
        if tail and not re.search(r"\d", content):
            if not ASKS.search(FORMULA.sub("", content)):
                return end
        elif not tail:
            rest = [text.strip().removeprefix(end) for text in problems]
            if most(sum(bool(ASKS.search(one)) for one in rest), len(problems)):
                return end
    return ""
