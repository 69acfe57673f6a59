"""Reads sets and inequalities as unions of intervals, and compares the unions."""

import functools
from typing import NamedTuple

from ..parse import tree as t
from ..parse.relations import is_label
from .prover import Prover

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_MAX_INTERVALS = 40
Intervals = tuple[t.Interval, ...]


class Region(NamedTuple):
    """Represents a set of reals.

    Attributes:
      label: name of the quantity that lies in the set, or None.
      intervals: intervals whose union is the set.
    """

    label: t.Node | None
    intervals: Intervals


class Incomparable(Exception):
    """Signals that the order of two interval ends is unknown."""


class Regions:
    """Reads and compares sets of reals.

    Args:
      prover: prover that decides which of two interval ends is greater.
    """

    def __init__(self, prover: Prover):
        self._prover = prover

    def read(self, node: t.Node) -> Region | None:
        """Returns the set of reals that a node describes, or None.

        A pair and a finite set are regions only inside other sets: see
        `read_as_region`.
        """
        match node:
            case t.Interval(t.Expression(), t.Expression()):
                return Region(None, (node,))
            case t.SetOp():
                return self._combined(node)
            case t.Rel():
                return self._solutions(node)
            case t.Chain():
                return _between(node)
            case t.Braces((t.Rel() | t.Chain() as condition,)):
                # {x : x > 2}: the set binds the name x.
                found = self.read(condition)
                return found and Region(None, found.intervals)
            case t.Several() | t.Braces():
                return self._of_several(node)
        return None

    def read_as_region(self, node: t.Node) -> Region | None:
        """Returns the set of reals of a node, which may be a pair or a finite set."""
        match node:
            case t.Tuple((t.Expression() as low, t.Expression() as high)):
                if self._prover.sign(low, high) in (0, 1):
                    return None  # a point; as an interval it would be empty
                return Region(None, (t.Interval(low, high, False, False),))
            case t.Braces(items) if all(isinstance(p, t.Expression) for p in items):
                return Region(None, tuple(t.Interval(p, p, True, True) for p in items))
        return self.read(node)

    def same(self, left: Region, right: Region) -> bool:
        """Returns whether two regions are equal, whatever the order of their intervals.

        Empty regions are equal only if they are written alike: [1, 0] differs from [3,
        2].
        """
        if None not in (left.label, right.label) and left.label != right.label:
            return False
        a, b = self._settled(left.intervals), self._settled(right.intervals)
        if len(a) != len(b) or not a and left.intervals != right.intervals:
            return False
        rest = list(b)
        for part in a:
            for index, other in enumerate(rest):
                if self._same_interval(part, other):
                    del rest[index]
                    break
            else:
                return False
        return True

    def _same_interval(self, a: t.Interval, b: t.Interval) -> bool:
        return (
            (a.low_closed, a.high_closed) == (b.low_closed, b.high_closed)
            and self._prover.equal(a.low, b.low)
            and self._prover.equal(a.high, b.high)
        )

    def _settled(self, intervals: Intervals) -> Intervals:
        try:
            return self._merged(intervals)
        except Incomparable:
            return intervals

    def _combined(self, node: t.SetOp) -> Region | None:
        left, right = self.read_as_region(node.left), self.read_as_region(node.right)
        if left is None or right is None:
            return None
        if node.op == "cup":
            intervals = self._settled(left.intervals + right.intervals)
            return Region(left.label or right.label, intervals)
        try:
            others = right.intervals
            if node.op == "minus":
                others = self._complement(others)
            intervals = self._intersection(left.intervals, others)
        except Incomparable:
            return None
        return Region(left.label or right.label, intervals)

    def _solutions(self, node: t.Rel) -> Region | None:
        relation, left, right = node.op, node.left, node.right
        if relation == "in":
            found = self.read_as_region(right) if is_label(left) else None
            return found and Region(left, found.intervals)
        if relation not in _FLIPPED:
            return None
        if not (isinstance(left, t.Expression) and isinstance(right, t.Expression)):
            return None
        if not is_label(left):
            if not is_label(right):
                return None
            left, right, relation = right, left, _FLIPPED[relation]
        if t.symbols(left) & t.symbols(right):
            return None
        return Region(left, _half_line(relation, right))

    def _of_several(self, node: t.Several | t.Braces) -> Region | None:
        """Reads several inequalities or sets as one region.

        The word "or" joins them, including single points such as x = 1. Otherwise
        labelled regions with common points are intersected, and all others are joined.
        """
        read = [self.read(part) for part in node.items]
        if getattr(node, "joined", "and") == "or" and any(read):
            read = [r or _point(p) for r, p in zip(read, node.items, strict=True)]
        regions = [region for region in read if region is not None]
        if len(regions) < 2 or len(regions) < len(read):
            return None
        labels = {region.label for region in regions} - {None}
        if len(labels) > 1:
            return None
        label = next(iter(labels), None)
        together = label is not None and getattr(node, "joined", "and") != "or"
        joined = regions[0].intervals
        for region in regions[1:]:
            common: Intervals = ()
            if together:
                try:
                    common = self._intersection(joined, region.intervals)
                except Incomparable:
                    return None
            joined = common or self._settled(joined + region.intervals)
        return Region(label, joined)

    # --- the algebra of intervals

    def _order(self, left: t.Node, right: t.Node) -> int:
        self._prover.charge(10)
        sign = self._prover.sign(left, right)
        if sign is None:
            raise Incomparable
        return sign

    def _is_empty(self, interval: t.Interval) -> bool:
        order = self._order(interval.low, interval.high)
        if order == 0:
            return not (interval.low_closed and interval.high_closed)
        return order > 0

    def _merged(self, intervals: Intervals) -> Intervals:
        """Sorts intervals and joins those that overlap or touch."""
        if len(intervals) > _MAX_INTERVALS:
            raise Incomparable

        def earlier(a: t.Interval, b: t.Interval) -> int:
            return (
                self._order(a.low, b.low)
                or b.low_closed - a.low_closed
                or self._order(a.high, b.high)
            )

        parts = [part for part in intervals if not self._is_empty(part)]
        merged: list[t.Interval] = []
        for part in sorted(parts, key=functools.cmp_to_key(earlier)):
            if merged:
                gap = self._order(part.low, merged[-1].high)
                touching = merged[-1].high_closed or part.low_closed
                if gap < 0 or gap == 0 and touching:
                    merged[-1] = self._hull(merged[-1], part)
                    continue
            merged.append(part)
        return tuple(merged)

    def _hull(self, first: t.Interval, second: t.Interval) -> t.Interval:
        """Joins two overlapping intervals, of which `first` starts first."""
        order = self._order(first.high, second.high)
        high, closed = first.high, first.high_closed
        if order == 0:
            closed = closed or second.high_closed
        elif order < 0:
            high, closed = second.high, second.high_closed
        return t.Interval(first.low, high, first.low_closed, closed)

    def _complement(self, intervals: Intervals) -> Intervals:
        rest: Intervals = (t.Interval(t.MINUS_INFINITY, t.INFINITY, False, False),)
        for part in intervals:
            outside = (
                t.Interval(t.MINUS_INFINITY, part.low, False, not part.low_closed),
                t.Interval(part.high, t.INFINITY, not part.high_closed, False),
            )
            rest = self._intersection(rest, outside)
        return rest

    def _intersection(self, left: Intervals, right: Intervals) -> Intervals:
        if len(left) * len(right) > _MAX_INTERVALS**2:
            raise Incomparable
        found = []
        for a in left:
            for b in right:
                low_order = self._order(a.low, b.low)
                low = a if low_order > 0 else b
                low_closed = low.low_closed
                if low_order == 0:
                    low_closed = a.low_closed and b.low_closed
                high_order = self._order(a.high, b.high)
                high = a if high_order < 0 else b
                high_closed = high.high_closed
                if high_order == 0:
                    high_closed = a.high_closed and b.high_closed
                part = t.Interval(low.low, high.high, low_closed, high_closed)
                if not self._is_empty(part):
                    found.append(part)
        return self._merged(tuple(found))


def _point(node: t.Node) -> Region | None:
    match node:
        case t.Rel("=", label, t.Expression() as value):
            if is_label(label) and not t.symbols(value):
                return Region(label, (t.Interval(value, value, True, True),))
    return None


def _half_line(relation: str, bound: t.Node) -> Intervals:
    below = t.Interval(t.MINUS_INFINITY, bound, False, relation == "<=")
    above = t.Interval(bound, t.INFINITY, relation == ">=", False)
    if relation == "!=":
        return (below, above)
    return (below,) if relation in ("<", "<=") else (above,)


def _between(node: t.Chain) -> Region | None:
    """Reads a < x < b or b > x > a."""
    if len(node.steps) != 2:
        return None
    first, second = node.steps
    middle = first.right
    if not (isinstance(middle, t.Expression) and is_label(middle)):
        return None
    if first.op in (">", ">=") and second.op in (">", ">="):
        low, high = second.right, first.left
        closed = second.op == ">=", first.op == ">="
    elif first.op in ("<", "<=") and second.op in ("<", "<="):
        low, high = first.left, second.right
        closed = first.op == "<=", second.op == "<="
    else:
        return None
    if not (isinstance(low, t.Expression) and isinstance(high, t.Expression)):
        return None
    if is_label(low) and is_label(high) and t.symbols(low):
        return None
    low_closed = closed[0] and low != t.MINUS_INFINITY
    high_closed = closed[1] and high != t.INFINITY
    return Region(middle, (t.Interval(low, high, low_closed, high_closed),))
