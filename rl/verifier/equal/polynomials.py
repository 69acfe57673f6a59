"""Proves identities such as (x + 1)^2 = x^2 + 2x + 1 by exact arithmetic."""

import functools
import operator

from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from ..parse import tree as t
from ..parse.budget import Budget

_MAX_NAMES, _MAX_TERMS, _MAX_DEGREE, _MAX_BITS = 16, 50, 24, 200
_RING = fmpq_mpoly_ctx.get(("x", _MAX_NAMES), Ordering.lex)


def identical(left: t.Node, right: t.Node, budget: Budget) -> bool:
    """Returns whether two expressions are shown to be the same polynomial.

    Parts such as sin x or 1/x count as names. The result is False for infinities, signs
    ± and polynomials that exceed a limit.
    """
    names: dict[tuple, int] = {}

    def read(node: t.Node) -> fmpq_mpoly:
        budget.charge(2)
        match node:
            case t.Num(value) if t.bits(value) <= _MAX_BITS:
                return _RING.constant(fmpq(value.numerator, value.denominator))
            case t.Add(terms):
                return functools.reduce(operator.add, map(read, terms))
            case t.Mul(factors):
                return functools.reduce(_product, map(read, factors))
            case t.Pow(base, t.Num(n)) if n.denominator == 1 and 0 < n <= _MAX_DEGREE:
                return functools.reduce(_product, [read(base)] * int(n))
            case t.Sym() | t.Const() | t.Pow() | t.Fn() | t.Call():
                parts = [str(read(part)) for part in t.children(node)]
                name = type(node), getattr(node, "name", ""), *parts
                place = names.setdefault(name, len(names))
                if place < _MAX_NAMES and node != t.INFINITY:
                    return _RING.gen(place)
        raise ValueError("is not supported")

    try:
        return read(left) == read(right)
    except ValueError:
        return False


def _product(left: fmpq_mpoly, right: fmpq_mpoly) -> fmpq_mpoly:
    value = left * right
    if len(value) > _MAX_TERMS or value.total_degree() > _MAX_DEGREE:
        raise ValueError("is too large")
    return value
