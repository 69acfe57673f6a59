"""Computes the shape of a formula: a canonical form used to find copies."""

import itertools
from collections import Counter
from collections.abc import Sequence

from ..parse import tree as t


def shape_of(node: t.Node) -> t.Node:
    """Returns the canonical form of a tree: the same for a formula and its copies.

    Parts whose order is free are sorted. Terms of 0, factors and exponents of 1, units,
    percent and degree signs are removed. Minus signs of factors are merged.
    """
    node = t.rebuilt(node, shape_of)
    match node:
        case t.Add(terms):
            flat = _flat(t.Add, terms)
            return _collected(t.Add, [term for term in flat if term != t.ZERO], t.ZERO)
        case t.Mul(factors):
            signed = list(map(_signed, _flat(t.Mul, factors)))
            rest = [f for _, f in signed]
            # Keep a power of one that is the whole formula.
            rest = [f for f in rest if not _is_one(f)] or rest
            return _product(sum(sign for sign, _ in signed) % 2 == 1, rest)
        case t.Pow(base, exponent) if exponent == t.ONE:
            return base
        case t.Ratio((value, one)) if one == t.ONE:
            return value
        case t.Pow(t.Pow(base, inner), outer) if inner == outer == t.MINUS_ONE:
            return base
        case t.Pow(base, t.Num(power) as exponent) if power.denominator == 1:
            sign, base = _signed(base)
            return _product(sign and power % 2 == 1, [t.Pow(base, exponent)])
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


def _signed(shape: t.Node) -> tuple[bool, t.Node]:
    """Returns (negated, form); the form is the same for `shape` and its opposite."""
    opposite = _opposite(shape)
    left, right = repr(shape), repr(opposite)
    negative = (right.count("-"), right) < (left.count("-"), left)
    return negative, opposite if negative else shape


def _opposite(shape: t.Node) -> t.Node:
    match shape:
        case t.Num(value, ulp):
            return t.Num(-value, ulp)
        case t.Add(terms):
            return _collected(t.Add, list(map(_opposite, terms)), t.ZERO)
        case t.Mul(factors):
            minus = [isinstance(f, t.Num) and f.value < 0 for f in factors]
            rest = [
                _opposite(f) if m else f for f, m in zip(factors, minus, strict=True)
            ]
            return _product(not any(minus), rest)
    return _product(True, (shape,))


def _product(negative: bool, factors: Sequence[t.Node]) -> t.Node:
    rest = sorted((f for f in factors if f != t.ONE), key=repr) or [t.ONE]
    if negative and len(rest) == 1 and isinstance(rest[0], t.Add):
        return _opposite(rest[0])
    if negative:
        rest += [t.ONE] * (not any(isinstance(f, t.Num) for f in rest))
        first = next(i for i, f in enumerate(rest) if isinstance(f, t.Num))
        rest[first] = _opposite(rest[first])
    return _collected(t.Mul, rest, t.ONE)


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
        case t.Mul((t.Num(), t.Pow(t.Num(), e)) | (t.Pow(t.Num(), e), t.Num())):
            return e == t.MINUS_ONE
        case t.Pow(t.Num(), exponent):
            return exponent == t.MINUS_ONE
    return False


def is_plain(shape: t.Node) -> bool:
    """Returns whether a shape is a number, name, word or time, or -x, 2:x or f(x)."""
    match shape:
        case t.Num() | t.Sym() | t.Const() | t.Word() | t.Clock() | t.Numbers():
            return True
        case t.Mul(factors) if len(factors) == 2 and t.MINUS_ONE in factors:
            return all(map(is_plain, factors))
        case t.Ratio(parts) | t.Call(_, parts):
            return all(map(is_plain, parts))
    return False


def holds(parts: list[t.Node], formula: t.Node) -> bool:
    """Returns whether a part is ±`formula`, or has all terms or factors of it."""
    for wanted in (formula, _opposite(formula)):
        if wanted in parts:
            return True
        if isinstance(wanted, t.Add | t.Mul):
            least = Counter(t.children(wanted))
            alike = (part for part in parts if type(part) is type(wanted))
            if any(least <= Counter(t.children(part)) for part in alike):
                return True
    return False
