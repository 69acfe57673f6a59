"""Converts sets and inequalities to sets of reals, and compares such sets.

The ends of all intervals divide the real line into points and gaps. Two sets are equal
if they contain the same points and the same gaps.
"""

import functools
import operator
from collections.abc import Sequence
from typing import NamedTuple

from ..parse import tree as t
from ..parse.relations import ascending, is_label
from .prover import Prover

_ORDERS = frozenset("< <= > >= !=".split())
_MAX_ENDS = 80
_MEMBERSHIP = {"cup": operator.or_, "cap": operator.and_, "minus": operator.gt}


class Region(NamedTuple):
    label: t.Node | None
    node: t.Node


class Incomparable(Exception):
    """Signals that there are too many interval ends, or two of unknown order."""


class Regions:
    def __init__(self, prover: Prover):
        self._prover = prover

    def read(self, node: t.Node) -> Region | None:
        """Returns the set of reals that a node describes, or None.

        Pairs and finite sets count only inside set operations and after "in".
        """
        match node:
            case t.Interval(t.Expression(), t.Expression()):
                return Region(None, node)
            case t.SetOp(op, left, right):
                return _joined(op, [*map(self.read_as_region, (left, right))])
            case t.Rel("in" | "notin" as op, left, right):
                found = self.read_as_region(right) if is_label(left) else None
                if found is None or op == "in":
                    return found and Region(left, found.node)
                return Region(left, t.SetOp("minus", t.REALS, found.node))
            case t.Rel():
                return _solutions(node)
            case t.Chain():
                return _between(node)
            case t.Braces((t.Rel() | t.Chain() as condition,)):
                # {x : x > 2}: the set binds the name x.
                found = self.read(condition)
                return found and Region(None, found.node)
            case t.Several() | t.Braces():
                return self._of_several(node)
        return None

    def read_as_region(self, node: t.Node) -> Region | None:
        """Extends `read` to finite sets, and to pairs as open intervals."""
        match node:
            case t.Tuple((t.Expression() as low, t.Expression() as high)):
                if self._prover.points or self._prover.sign(low, high) in (0, 1):
                    return None  # a point; as an interval it would be empty
                return Region(None, t.Interval(low, high, False, False))
            case t.Braces(items) if all(isinstance(p, t.Expression) for p in items):
                return _joined("cup", [Region(None, _point(p)) for p in items])
        return self.read(node)

    def same(self, left: Region, right: Region) -> bool:
        """Returns whether two regions are the same set, with labels equal or missing.

        Empty regions are equal only if written alike. May raise `Incomparable`.
        """
        if None not in (left.label, right.label) and left.label != right.label:
            return False
        first, second = self._members(left.node, right.node)
        return first == second and (any(first) or left.node == right.node)

    def pieces(self, region: Region) -> int | None:
        """Returns the number of separate pieces of a region, or None if unknown."""
        try:
            (members,) = self._members(region.node)
        except Incomparable:
            return None
        before = (False, *members)
        return sum(b and not a for a, b in zip(before, members, strict=False))

    def _of_several(self, node: t.Several | t.Braces) -> Region | None:
        """Returns the union or intersection of several inequalities or sets, or None.

        Labelled items that overlap are intersected, unless "or" joins them.
        """
        either = isinstance(node, t.Several) and node.joined == "or"
        read = [self.read(part) for part in node.items]
        if either and any(read):
            read = [r or _value(p) for r, p in zip(read, node.items, strict=True)]
        if len(read) < 2 or None in read:
            return None
        joined = _joined("cup", read)
        if joined is None or joined.label is None or either:
            return joined
        common = _joined("cap", read)
        try:
            return common if common and any(*self._members(common.node)) else joined
        except Incomparable:
            return None

    def _members(self, *nodes: t.Node) -> list[tuple[bool, ...]]:
        intervals = [p for n in nodes for p in t.walk(n) if isinstance(p, t.Interval)]
        ends = {end for part in intervals for end in (part.low, part.high)}
        if len(ends) > _MAX_ENDS:
            raise Incomparable
        places: dict[t.Node, int] = {}
        before, place = None, -1
        for end in sorted(ends, key=functools.cmp_to_key(self._order)):
            place += 2 * (before is None or self._order(before, end) != 0)
            places[end] = place
            before = end
        return [_membership(node, places, place + 2) for node in nodes]

    def _order(self, left: t.Node, right: t.Node) -> int:
        self._prover.charge(10)
        if left == right or self._prover.equal(left, right):
            return 0
        sign = self._prover.sign(left, right)
        if sign is None:
            raise Incomparable
        return sign


def _membership(
    node: t.Node, places: dict[t.Node, int], count: int
) -> tuple[bool, ...]:
    if isinstance(node, t.SetOp):
        sides = [_membership(part, places, count) for part in (node.left, node.right)]
        return tuple(map(_MEMBERSHIP[node.op], *sides))
    first = places[node.low] + (not node.low_closed)
    end = places[node.high] + node.high_closed
    return tuple(first <= at < end for at in range(count))


def _joined(op: str, regions: Sequence[Region | None]) -> Region | None:
    read = [region for region in regions if region is not None]
    labels = {region.label for region in read} - {None}
    if len(read) < len(regions) or not read or len(labels) > 1 or op not in _MEMBERSHIP:
        return None
    nodes = [region.node for region in read]
    node = functools.reduce(lambda left, right: t.SetOp(op, left, right), nodes)
    return Region(next(iter(labels), None), node)


def parts(node: t.Node) -> list[t.Node]:
    """Returns the intervals of a union, [node] for an interval, else an empty list."""
    match node:
        case t.SetOp("cup", left, right):
            first, second = parts(left), parts(right)
            return first + second if first and second else []
        case t.Interval():
            return [node]
    return []


def _point(value: t.Node) -> t.Interval:
    return t.Interval(value, value, True, True)


def _value(node: t.Node) -> Region | None:
    match node:
        case t.Rel("=", label, t.Expression() as value):
            if is_label(label) and not value.names:
                return Region(label, _point(value))
    return None


def _solutions(node: t.Rel) -> Region | None:
    op, label, bound = node.op, node.left, node.right
    upward = op in (">", ">=")
    if not is_label(label):
        label, bound, upward = bound, label, not upward
    expressions = isinstance(label, t.Expression) and isinstance(bound, t.Expression)
    if op not in _ORDERS or not expressions or not is_label(label):
        return None
    if label.names & bound.names:
        return None
    if op == "!=":
        return Region(label, t.SetOp("minus", t.REALS, _point(bound)))
    closed = op in ("<=", ">=")
    if upward:
        return Region(label, t.Interval(bound, t.INFINITY, closed, False))
    return Region(label, t.Interval(t.MINUS_INFINITY, bound, False, closed))


def _between(node: t.Chain) -> Region | None:
    steps = ascending(node).steps
    if len(steps) != 2 or not {step.op for step in steps} <= {"<", "<="}:
        return None
    low, label, high = steps[0].left, steps[0].right, steps[1].right
    if not all(isinstance(side, t.Expression) for side in (low, label, high)):
        return None
    if not is_label(label) or is_label(low) and is_label(high) and low.names:
        return None
    low_closed = steps[0].op == "<=" and low != t.MINUS_INFINITY
    high_closed = steps[1].op == "<=" and high != t.INFINITY
    return Region(label, t.Interval(low, high, low_closed, high_closed))
