"""The shape of a formula: what is left of it when order and dress are forgotten.

Copies are found by it, and the operations are counted on it that nobody carried out.
"""

from collections import Counter

from ..parse.tree import (
    MINUS_ONE,
    ONE,
    SYMMETRIC,
    ZERO,
    Add,
    Braces,
    Call,
    Chain,
    Clock,
    Const,
    Degrees,
    Mul,
    Node,
    Num,
    Numbers,
    Percent,
    Pow,
    Quantity,
    Ratio,
    Rel,
    Several,
    Sym,
    Word,
    rebuilt,
    walk,
)


def shape_of(node: Node) -> Node:
    """A tree as written, but for order, zeros, ones, units and which side is left."""
    node = rebuilt(node, shape_of)
    match node:
        case Add(terms):
            flat = []
            for term in terms:
                flat += term.terms if isinstance(term, Add) else (term,)
            return _collected(Add, [t for t in flat if t != ZERO], ZERO)
        case Mul(factors):
            flat = []
            for factor in factors:
                flat += factor.factors if isinstance(factor, Mul) else (factor,)
            negative = sum(map(_is_below_zero, flat)) % 2
            rest = [_without_sign(f) for f in flat]
            rest = [f for f in rest if f != ONE]
            # A power of one alone is itself the formula.
            rest = [f for f in rest if not _is_one(f)] or rest
            if negative and len(rest) == 1 and isinstance(rest[0], Add):
                return shape_of(Add(tuple(Mul((MINUS_ONE, t)) for t in rest[0].terms)))
            first = next((f for f in rest if isinstance(f, Num)), None)
            if negative and first is not None:
                rest[rest.index(first)] = Num(-first.value)
                return _collected(Mul, rest, ONE)
            return _collected(Mul, [MINUS_ONE] * negative + rest, ONE)
        case Pow(base, exponent) if exponent == ONE:
            return base
        case Ratio((value, one)) if one == ONE:
            return value
        case Pow(Pow(base, inner), outer) if inner == outer == MINUS_ONE:
            return base
        case Rel(op, left, right) if op in SYMMETRIC:
            return Rel(op, *sorted((left, right), key=repr))
        case Rel(">" | ">=" as op, left, right):
            return Rel({">": "<", ">=": "<="}[op], right, left)
        case Chain(steps) if all(s.op in (">", ">=", "<", "<=") for s in steps):
            return Chain(tuple(sorted(steps, key=repr)))
        case Several(items) | Braces(items):
            return type(node)(tuple(sorted(items, key=repr)))
        case Degrees(value) | Percent(value) | Quantity(value):
            return value
    return node


def _is_below_zero(factor: Node) -> bool:
    """A negative number, as a factor or below a fraction bar."""
    if isinstance(factor, Pow) and factor.exponent == MINUS_ONE:
        factor = factor.base
    return isinstance(factor, Num) and factor.value < 0


def _without_sign(factor: Node) -> Node:
    if not _is_below_zero(factor):
        return factor
    if isinstance(factor, Pow):
        return Pow(_without_sign(factor.base), MINUS_ONE)
    return Num(-factor.value, factor.ulp)


def _is_one(factor: Node) -> bool:
    """A factor or a denominator that changes nothing."""
    return factor == ONE or (isinstance(factor, Pow) and _is_one(factor.base))


def _collected(kind: type, parts: list[Node], empty: Node) -> Node:
    if len(parts) < 2:
        return parts[0] if parts else empty
    return kind(tuple(sorted(parts, key=repr)))


def is_rational(shape: Node) -> bool:
    """Whether a shape is one rational number as one writes it: 2, 0.5, -1/2."""
    match shape:
        case Num():
            return True
        case Mul(factors) if factors[0] == MINUS_ONE:
            return is_rational(_collected(Mul, [*factors[1:]], ONE))
        case Mul((Num(), Pow(Num(), exponent))) | Mul((Pow(Num(), exponent), Num())):
            return exponent == MINUS_ONE
        case Pow(Num(), exponent):
            return exponent == MINUS_ONE
    return False


def is_plain(shape: Node) -> bool:
    """Whether a shape is a value that has nothing in it to be worked out."""
    match shape:
        case Num() | Sym() | Const() | Word() | Clock() | Numbers():
            return True
        case Mul(factors) if len(factors) == 2 and MINUS_ONE in factors:
            return all(map(is_plain, factors))
        case Ratio(parts) | Call(_, parts):
            return all(map(is_plain, parts))
    return False


def holds(shape: Node, formula: Node) -> bool:
    """Whether a formula's shape occurs in another, also as some terms or factors."""
    parts = (formula, shape_of(Mul((MINUS_ONE, formula))))
    return any(_has_among(node, part) for node in walk(shape) for part in parts)


def _has_among(node: Node, part: Node) -> bool:
    match node, part:
        case (Add(own), Add(others)) | (Mul(own), Mul(others)):
            return not Counter(others) - Counter(own)
    return node == part
