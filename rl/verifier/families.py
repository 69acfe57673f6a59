"""Answers with a free integer: k pi and n pi are the same numbers."""

from rl.verifier.equality import Prover
from rl.verifier.nodes import (
    MINUS_ONE,
    ONE,
    ZERO,
    Braces,
    Const,
    Degrees,
    Node,
    Rel,
    Several,
    Sym,
    add,
    contains,
    divide,
    mul,
    negative,
    number,
    substitute,
    symbols,
    walk,
)

_MAX_SHIFT = 10_000
_FAMILY_LETTERS = frozenset({"k", "n", "m", "l"})


def with_one_parameter(
    left: Node, right: Node, declared: frozenset[str]
) -> tuple[Node, Node]:
    """Gives the integer parameter of two families, k pi and n pi, one name."""
    a, b = symbols(_without_label(left)), symbols(_without_label(right))
    ours, theirs = a - b, b - a
    if len(ours) != 1 or len(theirs) != 1:
        return left, right
    (old,), (new,) = theirs, ours
    if len(old.partition("_")[0]) > 1 or len(new.partition("_")[0]) > 1:
        return left, right
    families = {old, new} <= _FAMILY_LETTERS and all(
        _has_pi(node) or contains(node, Degrees) for node in (left, right)
    )
    if families or {old, new} & declared:
        return left, substitute(right, {Sym(old): Sym(new)})
    return left, right


def _has_pi(node: Node) -> bool:
    return any(part == Const("pi") for part in walk(node))


def _without_label(node: Node) -> Node:
    match node:
        case Rel("=" | "in" | "approx", _, right):
            return right
        case Several(items) | Braces(items):
            return type(node)(tuple(map(_without_label, items)))
    return node


def same_family(a: Node, b: Node, declared: frozenset[str], prover: Prover) -> bool:
    """Whether two forms a + b k, over all integers k, are the same numbers.

    Args:
      a: an expression.
      b: another one.
      declared: names that an answer declares to be any integer.
      prover: shows equality.
    """
    names = symbols(a)
    if len(names) != 1 or symbols(b) != names:
        return False
    (name,) = names
    variable = Sym(name)
    at_zero = [substitute(node, {variable: ZERO}) for node in (a, b)]
    if name not in declared and not (
        name in _FAMILY_LETTERS and all(map(_has_pi, at_zero))
    ):
        return False
    if None in [prover.linear_root(node, name) for node in (a, b)]:
        return False
    slopes = [
        add(substitute(node, {variable: ONE}), negative(offset))
        for node, offset in zip((a, b), at_zero, strict=True)
    ]
    if not any(prover.equal(slopes[0], mul(s, slopes[1])) for s in (ONE, MINUS_ONE)):
        return False
    shift = divide(add(at_zero[0], negative(at_zero[1])), slopes[0])
    steps = prover.balls.nearest_integer(shift)
    if steps is None or abs(steps) > _MAX_SHIFT:
        return False
    return prover.equal(shift, number(steps))
