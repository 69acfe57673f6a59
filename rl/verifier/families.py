"""Answers with a free integer: k pi and n pi are the same numbers."""

from rl.verifier import tree
from rl.verifier.equality import equal, linear_root
from rl.verifier.numeric import real_value
from rl.verifier.tree import Node

_MAX_SHIFT = 10_000
_SIGNS = (tree.ONE, tree.MINUS_ONE)
_FAMILY_LETTERS = frozenset({"k", "n", "m", "l"})


def with_one_parameter(
    left: Node, right: Node, declared: frozenset[str]
) -> tuple[Node, Node]:
    """Gives the integer parameter of two families, k pi and n pi, one name."""
    a, b = tree.symbols(_without_label(left)), tree.symbols(_without_label(right))
    ours, theirs = a - b, b - a
    if len(ours) != 1 or len(theirs) != 1:
        return left, right
    (old,), (new,) = theirs, ours
    families = {old, new} <= _FAMILY_LETTERS and all(
        tree.contains_constant(node, "pi") or tree.contains(node, frozenset({"deg"}))
        for node in (left, right)
    )
    if families or {old, new} & declared:
        return left, tree.substitute(right, {("sym", old): ("sym", new)})
    return left, right


def _without_label(node: Node) -> Node:
    if node[0] == "rel" and node[1] in ("=", "in", "approx"):
        return node[3]
    if node[0] in ("list", "set"):
        return (node[0], *map(_without_label, node[1:]))
    return node


def same_family(a: Node, b: Node, declared: frozenset[str]) -> bool:
    """Whether two forms a + b k, over all integers k, are the same numbers.

    Args:
      a: an expression.
      b: another one.
      declared: names that an answer declares to be any integer.
    """
    common = tree.symbols(a) & tree.symbols(b)
    if len(common) != 1 or len(tree.symbols(a) | tree.symbols(b)) != 1:
        return False
    (name,) = common
    variable = ("sym", name)
    at_zero = [tree.substitute(node, {variable: tree.ZERO}) for node in (a, b)]
    if name not in declared and not (
        name in _FAMILY_LETTERS
        and all(tree.contains_constant(node, "pi") for node in at_zero)
    ):
        return False
    roots = [linear_root(node, name) for node in (a, b)]
    if None in roots:
        return False
    slopes = [
        tree.add(tree.substitute(node, {variable: tree.ONE}), tree.negative(offset))
        for node, offset in zip((a, b), at_zero, strict=True)
    ]
    if not any(equal(slopes[0], tree.mul(s, slopes[1])) for s in _SIGNS):
        return False
    shift = tree.divide(tree.add(at_zero[0], tree.negative(at_zero[1])), slopes[0])
    steps = real_value(shift)
    if steps is None or abs(steps) > _MAX_SHIFT:
        return False
    return equal(shift, tree.number(round(steps)))
