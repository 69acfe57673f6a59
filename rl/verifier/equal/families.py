"""Answers with a free integer: k pi and n pi are the same numbers.

A formula in n is not the set of its values, so that n + 1 and n are two answers. They
are one set where n is any integer. An answer that says so of itself says nothing about
the other one: what counts is what both sides declare. Without a word, the multiples of
a period, of pi or of degrees, are a family.
"""

import re
from collections.abc import Iterator

from ..parse.answers import Answer
from ..parse.relations import is_name
from ..parse.tree import (
    MINUS_ONE,
    ONE,
    PI,
    ZERO,
    Add,
    Degrees,
    Expression,
    Node,
    Rel,
    Sign,
    Sym,
    Tuple,
    add,
    children,
    divide,
    fold,
    negative,
    number,
    rebuilt,
    substitute,
    symbols,
    walk,
)
from .prover import Prover

_MAX_SHIFT = 10_000
_FAMILY_LETTERS = frozenset({"k", "n", "m"})
_CONSTANTS = frozenset(map(Sym, "C c K C_1 c_1 const constant".split()))
_INTEGERS = re.compile(r"\\mathbb\s*\{?\s*Z|\bintegers?\b")
_NOT_ALL = re.compile(
    r"[<>]|\\(?:[gl]eq?|[gl]eqslant|neq?|mathbb\s*\{?\s*[NQRC])\b|Z\s*\}?\s*[\^_*+]"
    r"|\b(?:positive|negative|natural|non-?\w+|even|odd|prime|real)\b"
)
_ROUNDS = (0, 1, 4)


def integers_of(answer: Answer) -> frozenset[str]:
    """Names that an answer declares to be any integer at all, not just some kind."""
    if not _INTEGERS.search(answer.text) or _NOT_ALL.search(answer.text):
        return frozenset()
    return answer.parameters


def of_other_kinds(left: Answer, right: Answer) -> bool:
    """Whether one is about all integers, as it says, and the other about others."""
    ours, theirs = integers_of(left), integers_of(right)
    if bool(ours) == bool(theirs):
        return False
    return _NOT_ALL.search(right.text if ours else left.text) is not None


class Families:
    """The families of two answers.

    Args:
      prover: shows equality.
      left: what the one answer declares to be any integer.
      right: what the other one declares.
    """

    def __init__(self, prover: Prover, left: frozenset[str], right: frozenset[str]):
        self._prover = prover
        self._left, self._right = left, right
        self._counting: dict[tuple[Node, str], bool] = {}

    def counts(self, name: str, *, by_custom: bool) -> bool:
        """Whether a name is any integer: as an answer declares, or by custom."""
        declared = name in self._left | self._right
        return declared or by_custom and name in _FAMILY_LETTERS

    def aligned(self, a: Node, b: Node) -> tuple[Node, frozenset[str]]:
        """The right side with the left one's parameter, and what both declare.

        Where several names are said in one other, this is a parameter by itself.
        """
        shared = self._left & self._right
        ours, theirs = symbols(a), symbols(b)
        ours, theirs = ours - theirs, theirs - ours
        for mine, other in (
            (
                ours & (self._left | _parameters(a)),
                theirs & (self._right | _parameters(b)),
            ),
            (self._of_periods(a, ours), self._of_periods(b, theirs)),
        ):
            if len(mine) == len(other) == 1:
                (new,), (old,) = mine, other
                if new in self._left and old in self._right:
                    shared |= mine
                return substitute(b, {Sym(old): Sym(new)}), shared
        return b, shared

    def _of_periods(self, node: Node, names: frozenset[str]) -> frozenset[str]:
        """Those of the names that count periods wherever they occur."""
        return frozenset(
            name
            for name in names & _FAMILY_LETTERS
            if all(
                self._counts_periods(part, name) for part in _expressions(node, name)
            )
        )

    def _counts_periods(self, node: Node, name: str) -> bool:
        """Whether two steps of a name add the same number of turns, and nothing else.

        Two, so that (-1)^k pi/6 + k pi is a family as well.
        """
        key = node, name
        if key not in self._counting:
            turns = any(part == PI or isinstance(part, Degrees) for part in walk(node))
            self._counting[key] = turns and self._adds_turns(node, name)
        return self._counting[key]

    def _adds_turns(self, node: Node, name: str) -> bool:
        # Either sign of a plus-minus is as good as the other one here.
        node = substitute(node, {Sign(1): ONE, Sign(-1): MINUS_ONE})
        at = {
            n: substitute(node, {Sym(name): number(n)})
            for first in _ROUNDS
            for n in (first, first + 2)
        }
        steps = [add(at[n + 2], negative(at[n])) for n in _ROUNDS]
        if not all(self._prover.equal(step, steps[0]) for step in steps[1:]):
            return False
        bare = substitute(steps[0], {Sym(x): ZERO for x in symbols(steps[0])})
        if not self._prover.equal(bare, steps[0]) or self._prover.is_zero(bare):
            return False
        return self._prover.equal(*(fold(_without_turns(at[n])) for n in (0, 2)))

    def same(self, a: Node, b: Node, declared: frozenset[str]) -> bool:
        """Whether two forms a + b k, over all integers k, are the same numbers.

        Args:
          a: an expression.
          b: another one.
          declared: names that both answers declare to be any integer.
        """
        names = symbols(a)
        if len(names) != 1 or symbols(b) != names:
            return False
        (name,) = names
        if name not in declared and not (
            name in _FAMILY_LETTERS
            and self._counts_periods(a, name)
            and self._counts_periods(b, name)
        ):
            return False
        if None in [self._prover.linear_root(node, name) for node in (a, b)]:
            return False
        first, second = (
            [substitute(node, {Sym(name): number(n)}) for n in (0, 1)]
            for node in (a, b)
        )
        slope, other = (add(at[1], negative(at[0])) for at in (first, second))
        if not any(
            self._prover.equal(slope, step) for step in (other, negative(other))
        ):
            return False
        # (n - 2) pi would be written as n pi if it meant all multiples: it is a
        # formula, the angles of a polygon.
        if (
            name not in declared
            and self._is_whole(divide(first[0], slope)) is not False
        ):
            return False
        return self._is_whole(divide(add(first[0], negative(second[0])), slope)) is True

    def _is_whole(self, ratio: Node) -> bool | None:
        """Whether a real constant is an integer, within reach; None where unknown."""
        steps = self._prover.balls.nearest_integer(ratio)
        if steps is None or abs(steps) > _MAX_SHIFT:
            return None
        return self._prover.equal(ratio, number(steps))


def _parameters(node: Node) -> frozenset[str]:
    """What others are said in, t in (x, y) = (1 + t, 2t), or integrating adds: + C."""
    match node:
        case Rel("=", Tuple() as names, Tuple() as values) if is_name(names):
            free = symbols(values) - symbols(names)
            return free if len(free) == 1 else frozenset()
        case Rel("=", _, right):
            return _parameters(right)
        case Add(terms) if any(symbols(t) and not isinstance(t, Sym) for t in terms):
            return frozenset(t.name for t in terms if t in _CONSTANTS)
    return frozenset()


def _expressions(node: Node, name: str) -> Iterator[Node]:
    """The greatest expressions of a node in which a name occurs."""
    if isinstance(node, Expression):
        if name in symbols(node):
            yield node
        return
    for part in children(node):
        yield from _expressions(part, name)


def _without_turns(node: Node) -> Node:
    """The node with nothing for pi and for degrees."""
    if node == PI or isinstance(node, Degrees):
        return ZERO
    return rebuilt(node, _without_turns)
