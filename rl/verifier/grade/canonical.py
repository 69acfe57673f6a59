"""Computes the shape of a formula: a canonical form used to find copies."""

import itertools
from collections import Counter

from ..parse import tree as t


def shape_of(node: t.Node) -> t.Node:
    """Returns the canonical form of a tree: the same for a formula and its copies.

    Terms, factors, items of lists and sets, and sides of symmetric relations are
    sorted; ">" becomes "<". Terms of 0, factors and exponents of 1, double signs,
    units, percent and degree signs are removed.
    """
    node = t.rebuilt(node, shape_of)
    match node:
        case t.Add(terms):
            flat = _flat(t.Add, terms)
            return _collected(t.Add, [term for term in flat if term != t.ZERO], t.ZERO)
        case t.Mul(factors):
            flat = _flat(t.Mul, factors)
            negative = sum(map(_is_below_zero, flat)) % 2
            rest = [f for f in map(_without_sign, flat) if f != t.ONE]
            # Keep a power of one that is the whole formula.
            rest = [f for f in rest if not _is_one(f)] or rest
            if negative and len(rest) == 1 and isinstance(rest[0], t.Add):
                opposite = [t.Mul((t.MINUS_ONE, term)) for term in rest[0].terms]
                return shape_of(t.Add(tuple(opposite)))
            first = next((f for f in rest if isinstance(f, t.Num)), None)
            if negative and first is not None:
                rest[rest.index(first)] = t.Num(-first.value)
                return _collected(t.Mul, rest, t.ONE)
            return _collected(t.Mul, [t.MINUS_ONE] * negative + rest, t.ONE)
        case t.Pow(base, exponent) if exponent == t.ONE:
            return base
        case t.Ratio((value, one)) if one == t.ONE:
            return value
        case t.Pow(t.Pow(base, inner), outer) if inner == outer == t.MINUS_ONE:
            return base
        case t.Rel(op, left, right) if op in t.SYMMETRIC:
            return t.Rel(op, *sorted((left, right), key=repr))
        case t.Rel(">" | ">=" as op, left, right):
            return t.Rel({">": "<", ">=": "<="}[op], right, left)
        case t.Chain(steps) if all(s.op in (">", ">=", "<", "<=") for s in steps):
            return t.Chain(tuple(sorted(steps, key=repr)))
        case t.Several(items) | t.Braces(items):
            return type(node)(tuple(sorted(items, key=repr)))
        case t.Degrees(value) | t.Percent(value) | t.Quantity(value):
            return value
    return node


def _flat(kind: type, parts: tuple[t.Node, ...]) -> list[t.Node]:
    inner = (t.children(part) if type(part) is kind else (part,) for part in parts)
    return list(itertools.chain.from_iterable(inner))


def _is_below_zero(factor: t.Node) -> bool:
    if isinstance(factor, t.Pow) and factor.exponent == t.MINUS_ONE:
        factor = factor.base
    return isinstance(factor, t.Num) and factor.value < 0


def _without_sign(factor: t.Node) -> t.Node:
    if not _is_below_zero(factor):
        return factor
    if isinstance(factor, t.Pow):
        return t.Pow(_without_sign(factor.base), t.MINUS_ONE)
    return t.Num(-factor.value, factor.ulp)


def _is_one(factor: t.Node) -> bool:
    return factor == t.ONE or (isinstance(factor, t.Pow) and _is_one(factor.base))


def _collected(kind: type, parts: list[t.Node], empty: t.Node) -> t.Node:
    if len(parts) < 2:
        return parts[0] if parts else empty
    return kind(tuple(sorted(parts, key=repr)))


def is_rational(shape: t.Node) -> bool:
    """Returns whether a shape is a `Num` or a quotient of two `Num`: 2, 0.5, -1/2."""
    match shape:
        case t.Num():
            return True
        case t.Mul(factors) if factors[0] == t.MINUS_ONE:
            return is_rational(_collected(t.Mul, [*factors[1:]], t.ONE))
        case t.Mul((t.Num(), t.Pow(t.Num(), exponent))) | t.Mul(
            (t.Pow(t.Num(), exponent), t.Num())
        ):
            return exponent == t.MINUS_ONE
        case t.Pow(t.Num(), exponent):
            return exponent == t.MINUS_ONE
    return False


def is_plain(shape: t.Node) -> bool:
    """Returns whether a shape is a `Num`, name, word or time, or -x, 2:x or f(x)."""
    match shape:
        case t.Num() | t.Sym() | t.Const() | t.Word() | t.Clock() | t.Numbers():
            return True
        case t.Mul(factors) if len(factors) == 2 and t.MINUS_ONE in factors:
            return all(map(is_plain, factors))
        case t.Ratio(parts) | t.Call(_, parts):
            return all(map(is_plain, parts))
    return False


def holds(parts: list[t.Node], formula: t.Node) -> bool:
    """Returns whether a part is ±`formula`, or has all its terms or factors."""
    for wanted in (formula, shape_of(t.Mul((t.MINUS_ONE, formula)))):
        if wanted in parts:
            return True
        if isinstance(wanted, t.Add | t.Mul):
            least = Counter(t.children(wanted))
            alike = (part for part in parts if type(part) is type(wanted))
            if any(least <= Counter(t.children(part)) for part in alike):
                return True
    return False
