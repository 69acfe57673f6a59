"""Removes what most rows of a set put before and behind each problem.

Such as an order to a model to answer in some form. In one row the same words may mean
something, so only text that most rows share is removed.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from tools.curation.grammar import ASKS, FIND, FORMULA, any_of
from tools.curation.row import Row

_FEW = 10  # with fewer rows nothing is taken to be shared
_REACH = 1000  # characters from either end
_BREAK = re.compile(r"[.:!?)\]}](?=\s)|\n+")
# What concerns the problem as a whole, and an example of a box.
_ABOUT_IT = any_of(r"\\boxed\s*\{[^{}]*\}", rf"\b{FIND} (?:this|it|the problem)\b")


class Wrapper:
    """Removes the head and the tail that most problems of one set share."""

    def __init__(self, problems: Sequence[str]):
        self._head = _shared(problems, tail=False)
        self._tail = _shared(problems, tail=True)

    def remove(self, row: Row) -> Row:
        """Returns the row without the text that the set put around its problem."""
        text = row.problem.strip().removeprefix(self._head).removesuffix(self._tail)
        return dataclasses.replace(row, problem=text.strip())


def most(some: int, rows: int) -> bool:
    """Returns whether `some` are most of a set's rows, if these are enough to tell."""
    return rows >= _FEW and 2 * some > rows


def _ends(text: str, tail: bool) -> set[str]:
    """Returns possible heads or tails of a text."""
    text = text.strip()
    breaks = [match.end() for match in _BREAK.finditer(text)]
    if tail:
        return {text[i:].strip() for i in breaks if len(text) - i <= _REACH}
    return {text[:i].strip() for i in breaks if i <= _REACH}


def _shared(problems: Sequence[str], *, tail: bool) -> str:
    """Returns the longest head or tail of most problems that asks nothing, or ""."""
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
