"""Removes what most rows of a set put before and behind each problem.

Such as an order to a model to answer in some form, or a number and its points. In one
row the same words may mean something.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from tools.curation.grammar import ASKS, FIND, FORMULA, any_of
from tools.curation.row import Row

_FEW = 10  # rows that share nothing yet
_REACH = 1000  # characters from either end
_BREAK = re.compile(r"[.:!?)\]}](?=\s)|\n+")
# What is said of the problem as a whole, and an example of a box.
_ABOUT_IT = any_of(r"\\boxed\s*\{[^{}]*\}", rf"\b{FIND} (?:this|it|the problem)\b")
_BESIDE = r"[\s().,:\[\]#-]*"  # "Question 5. (3 points)", but not "Roll 3 dice."
_LABEL = re.compile(rf"(?:{_BESIDE}(?:[A-Za-z]+{_BESIDE}0|0 [A-Za-z]+|0))+{_BESIDE}")


class Wrapper:
    """Removes the head and the tail that most problems of one set share."""

    def __init__(self, problems: Sequence[str]):
        self._head, self._tail = (_shared(problems, tail) for tail in (False, True))

    def remove(self, row: Row) -> Row:
        """Returns the row without what the set put around its problem."""
        begin = _cuts(row.problem, False).get(self._head, 0)
        # A tail has no number, and may follow a formula that ends without a stop.
        problem = row.problem[begin:].rstrip().removesuffix(self._tail or "")
        return dataclasses.replace(row, problem=problem.strip())


def most(some: int, rows: int) -> bool:
    """Returns whether `some` are most of a set's rows, if these are enough to tell."""
    return rows >= _FEW and 2 * some > rows


def _cuts(text: str, tail: bool) -> dict[str | None, int]:
    """Maps possible heads (numbers ignored) or tails of a text to where they end."""
    ends = [at.end() for at in _BREAK.finditer(text)]
    near = [i for i in ends if (len(text) - i if tail else i) <= _REACH]
    said = (text[i:] if tail else re.sub(r"\d+", "0", text[:i]) for i in near)
    return dict(zip(map(str.strip, said), near, strict=True))


def _shared(problems: Sequence[str], tail: bool) -> str | None:
    """Returns the longest head or tail of most problems that asks nothing itself.

    Before the question may be a label with numbers; a tail must neither ask nor count.
    """
    cuts = [_cuts(text, tail) for text in problems]
    held = Counter(key for cut in cuts for key in cut if key)
    for end in sorted(held, key=len, reverse=True):
        said = _ABOUT_IT.sub("", end)
        counts = re.search(r"\d", said) and (tail or not _LABEL.fullmatch(end))
        if counts or not most(held[end], len(problems)):
            continue
        if tail:
            left = not ASKS.search(FORMULA.sub("", said))
        else:
            at = zip(problems, (cut.get(end) for cut in cuts), strict=True)
            asking = [text for text, i in at if i is not None and ASKS.search(text[i:])]
            left = most(len(asking), len(problems))
        if left:
            return end
    return None
