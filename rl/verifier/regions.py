"""Sets of real numbers: intervals, their unions, and the inequalities they solve."""

import functools
import math
from typing import NamedTuple

from rl.verifier import tree
from rl.verifier.equality import equal, linear_root
from rl.verifier.numeric import real_value
from rl.verifier.relations import is_label, wordy
from rl.verifier.tree import Node

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_MINUS_INFINITY = tree.negative(tree.INFINITY)
_CLOSE = 1e-12
_MAX_INTERVALS = 40


class Interval(NamedTuple):
    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


class Region(NamedTuple):
    """What a label ranges over; the label is None where none is named."""

    label: Node | None
    intervals: tuple[Interval, ...]


def region_of(node: Node) -> Region | None:
    """The set of reals that a node describes, or None where it describes none.

    A tuple of two and a finite set count as regions only inside of others: see
    `as_region`.
    """
    match node[0]:
        case "interval":
            low, high = node[1], node[2]
            if not (tree.is_expression(low) and tree.is_expression(high)):
                return None
            low_closed = node[3] and low != _MINUS_INFINITY
            high_closed = node[4] and high != tree.INFINITY
            return Region(None, (Interval(low, high, low_closed, high_closed),))
        case "cup" | "cap" | "minus":
            return _combined(node)
        case "rel":
            return _solutions(node)
        case "chain":
            return _between(node)
        case "list" | "set":
            return _of_several(node)
    return None


def as_region(node: Node) -> Region | None:
    """Like region_of, where the context says that a region is meant."""
    if node[0] == "tuple" and len(node) == 3:
        return region_of(("interval", *node[1:], False, False))
    if node[0] == "set" and all(map(tree.is_expression, node[1:])):
        return Region(None, tuple(Interval(p, p, True, True) for p in node[1:]))
    return region_of(node)


def same_region(left: Region, right: Region, decimals: bool) -> bool:
    """Whether two regions are one, whatever the order of their parts."""
    if left.label is not None and right.label is not None:
        if left.label != right.label and not (wordy(left.label) or wordy(right.label)):
            return False
    a, b = _merged(left.intervals), _merged(right.intervals)
    if len(a) != len(b):
        return False
    rest = list(b)
    for part in a:
        for index, other in enumerate(rest):
            if part[2:] == other[2:] and all(
                equal(x, y, decimals) for x, y in zip(part[:2], other[:2], strict=True)
            ):
                del rest[index]
                break
        else:
            return False
    return True


def _combined(node: Node) -> Region | None:
    kind, first, second = node
    left, right = as_region(first), as_region(second)
    if left is None or right is None:
        return None
    if kind == "minus":
        right = Region(right.label, _complement(right.intervals))
    if kind == "cup":
        intervals = _merged(left.intervals + right.intervals)
    else:
        intervals = _intersection(left.intervals, right.intervals)
    return None if intervals is None else Region(left.label or right.label, intervals)


def _solutions(node: Node) -> Region | None:
    _, relation, left, right = node
    if relation == "in":
        found = as_region(right)
        return found and Region(left if is_label(left) else None, found.intervals)
    if relation not in _FLIPPED:
        return None
    if not (tree.is_expression(left) and tree.is_expression(right)):
        return None
    if not is_label(left):
        if is_label(right):
            left, right, relation = right, left, _FLIPPED[relation]
        else:
            solved = _solved(left, right, relation)
            if solved is None:
                return None
            left, relation, right = solved
    if tree.symbols(left) & tree.symbols(right):
        return None
    if left[0] == "fn":
        return _magnitudes(left, relation, right)
    return Region(left, _half_line(relation, right))


def _magnitudes(left: Node, relation: str, bound: Node) -> Region | None:
    """|x| < a is about x; |AB| < a is about a length."""
    if left[1] != "abs" or left[2][0] not in ("sym", "mul"):
        return None
    if left[2][0] == "mul" or left[2][1][:1].isupper():
        return Region(left, _half_line(relation, bound))
    below = tree.negative(bound)
    closed = relation.endswith("=")
    if relation in ("<", "<="):
        return Region(left[2], (Interval(below, bound, closed, closed),))
    if relation in (">", ">="):
        outside = (
            Interval(_MINUS_INFINITY, below, False, closed),
            Interval(bound, tree.INFINITY, closed, False),
        )
        return Region(left[2], outside)
    return None


def _half_line(relation: str, bound: Node) -> tuple[Interval, ...] | None:
    below = Interval(_MINUS_INFINITY, bound, False, relation == "<=")
    above = Interval(bound, tree.INFINITY, relation == ">=", False)
    if relation == "!=":
        return (below, above)
    return (below,) if relation in ("<", "<=") else (above,)


def _solved(left: Node, right: Node, relation: str) -> tuple[Node, str, Node] | None:
    """A linear inequality of one variable, solved for it."""
    difference = tree.add(left, tree.negative(right))
    names = tree.symbols(difference)
    if len(names) != 1:
        return None
    (name,) = names
    root = linear_root(difference, name)
    if root is None:
        return None
    variable = ("sym", name)
    step = tree.add(root, tree.ONE)
    slope = real_value(tree.substitute(difference, {variable: step}))
    if slope is None:
        return None
    return variable, relation if slope > 0 else _FLIPPED[relation], root


def _between(node: Node) -> Region | None:
    """a < x < b, in either direction."""
    if len(node) != 3:
        return None
    first, second = node[1], node[2]
    relations = first[1], second[1]
    if first[3][0] not in tree.EXPRESSIONS or not is_label(first[3]):
        return None
    if relations[0] in (">", ">=") and relations[1] in (">", ">="):
        low, high = second[3], first[2]
        closed = relations[1] == ">=", relations[0] == ">="
    elif relations[0] in ("<", "<=") and relations[1] in ("<", "<="):
        low, high = first[2], second[3]
        closed = relations[0] == "<=", relations[1] == "<="
    else:
        return None
    if not (tree.is_expression(low) and tree.is_expression(high)):
        return None
    if is_label(low) and is_label(high) and tree.symbols(low) != frozenset():
        return None
    interval = region_of(("interval", low, high, *closed))
    return interval and Region(first[3], interval.intervals)


def _of_several(node: Node) -> Region | None:
    """Inequalities side by side: apart they are alternatives, else conditions."""
    regions = [region_of(part) for part in node[1:]]
    if len(regions) < 2 or any(region is None for region in regions):
        return None
    label = next((r.label for r in regions if r.label is not None), None)
    joined: tuple[Interval, ...] | None = regions[0].intervals
    for region in regions[1:]:
        common = _intersection(joined, region.intervals)
        if common is None:
            joined = joined + region.intervals
        elif common and any(r.label is not None for r in regions):
            joined = common
        else:
            joined = _merged(joined + region.intervals)
    return Region(label, joined)


def _ends(interval: Interval) -> tuple[float, float] | None:
    low, high = real_value(interval.low), real_value(interval.high)
    return None if low is None or high is None else (low, high)


def _merged(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Sorted, with overlapping and touching parts joined; as is where symbolic."""
    if len(intervals) > _MAX_INTERVALS:
        return intervals
    keyed = [(_ends(interval), interval) for interval in intervals]
    if any(ends is None for ends, _ in keyed):
        return intervals
    keyed = [(e, i) for e, i in keyed if not _is_empty(e, i)]
    keyed.sort(key=lambda pair: (pair[0][0], not pair[1].low_closed, pair[0][1]))
    merged: list[tuple[tuple[float, float], Interval]] = []
    for ends, interval in keyed:
        if merged:
            (low, high), last = merged[-1]
            gap = ends[0] - high
            touching = _is_close(ends[0], high) and (
                last.high_closed or interval.low_closed
            )
            if touching or gap < 0 and not _is_close(ends[0], high):
                merged[-1] = _hull((low, high), last, ends, interval)
                continue
        merged.append((ends, interval))
    return tuple(interval for _, interval in merged)


def _hull(ends, interval, other_ends, other):
    high, top, closed = ends[1], interval.high, interval.high_closed
    if _is_close(high, other_ends[1]):
        closed = closed or other.high_closed
    elif other_ends[1] > high:
        high, top, closed = other_ends[1], other.high, other.high_closed
    joined = Interval(interval.low, top, interval.low_closed, closed)
    return (ends[0], high), joined


def _is_close(a: float, b: float) -> bool:
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= _CLOSE * max(abs(a), abs(b), 1.0)


def _is_empty(ends: tuple[float, float], interval: Interval) -> bool:
    if _is_close(*ends):
        return not (interval.low_closed and interval.high_closed)
    return ends[0] > ends[1]


def _complement(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    everything = (Interval(_MINUS_INFINITY, tree.INFINITY, False, False),)
    parts = []
    for low, high, low_closed, high_closed in intervals:
        outside = (
            Interval(_MINUS_INFINITY, low, False, not low_closed),
            Interval(high, tree.INFINITY, not high_closed, False),
        )
        parts.append(outside)
    return functools.reduce(
        lambda a, b: _intersection(a, b) if a is not None else None, parts, everything
    )


def _intersection(left, right) -> tuple[Interval, ...] | None:
    """Common points, or None where an end has no value."""
    if left is None or right is None or len(left) * len(right) > _MAX_INTERVALS**2:
        return None
    found = []
    for a in left:
        for b in right:
            ends_a, ends_b = _ends(a), _ends(b)
            if ends_a is None or ends_b is None:
                return None
            low, low_closed = _inner(
                (ends_a[0], a.low, a.low_closed), (ends_b[0], b.low, b.low_closed), 1
            )
            high, high_closed = _inner(
                (ends_a[1], a.high, a.high_closed),
                (ends_b[1], b.high, b.high_closed),
                -1,
            )
            part = Interval(low, high, low_closed, high_closed)
            if not _is_empty(_ends(part), part):
                found.append(part)
    return _merged(tuple(found))


def _inner(first, second, direction: int) -> tuple[Node, bool]:
    """The more restrictive of two ends; direction +1 for low ends, -1 for high."""
    if _is_close(first[0], second[0]):
        return first[1], first[2] and second[2]
    chosen = first if (first[0] - second[0]) * direction > 0 else second
    return chosen[1], chosen[2]
