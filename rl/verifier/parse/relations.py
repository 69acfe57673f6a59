"""Finds the names and the values in relations such as `x = 5`."""

from fractions import Fraction
from typing import Any, Protocol

from . import tree as t

_LABEL_PREFIXES = frozenset({"Delta", "angle", "triangle"})
_VALUES = (t.Braces, t.Interval, t.SetOp, t.Tuple, t.Matrix, t.Cases)
_SHOWN_DIGITS = 1
_AXES = ("x", "y", "z", "w")
_COUNTING_LETTERS = frozenset({"i", "j", "k", "m", "n"})


class Equality(Protocol):
    """Declares the methods of `Prover` that this module calls."""

    def equal(self, left: t.Node, right: t.Node) -> bool: ...

    def shows(self, decimal: t.Num, exact: t.Node, least: int) -> bool: ...


def is_label(node: t.Node) -> bool:
    """Returns whether a node names a quantity: x, f(x), |AB|, cos A; not x + y."""
    match node:
        case t.Sym():
            return True
        case t.Call(name):
            return name != "…"
        case t.SetOp() | t.Ratio():
            return all(map(is_label, t.children(node)))
        case t.Fn(name, (argument,)) if name not in ("log", "fact", "floor", "ceil"):
            return is_label(argument)
        case t.Mul(factors):
            names = [p.name if isinstance(p, t.Sym) else "" for p in factors]
            if names[0] in _LABEL_PREFIXES:
                names = names[1:]
                return len(names) == 1 or all(name[:1].isupper() for name in names)
            return all(name[:1].isupper() for name in names)
    return False


def steps_of(node: t.Rel | t.Chain) -> tuple[t.Rel, ...]:
    return node.steps if isinstance(node, t.Chain) else (node,)


def value_of(node: t.Rel | t.Chain, prover: Equality) -> t.Node | None:
    """Returns the value in a relation: 5 in `x = 5`, `5 = x`, `S = 2+3 = 5`.

    Returns None for inequalities, for equations to be solved (x + y = 3, |x| = 3), and
    if the sides that give a value do not agree (5 = 6). A decimal agrees with an exact
    number if it is that number, rounded or truncated.
    """
    steps = steps_of(node)
    if any(step.op not in ("=", "approx", "in") for step in steps):
        return None
    sides = [steps[0].left]
    for step in steps:
        match step:
            case t.Rel("approx", _, t.Num(value, None)) if value.denominator == 1:
                sides.append(t.Num(value, Fraction(1)))  # a rounded integer
            case _:
                sides.append(step.right)
    if is_distance(sides[0]) or is_distance(sides[-1]):
        return None
    if any(step.op == "in" for step in steps):
        if len(steps) > 1 or not isinstance(sides[-1], _VALUES):
            return None
    elif is_name(sides[-1]) and not is_name(sides[0]):
        sides.reverse()
    first, *rest = sides
    said = [side for side in rest if not is_name(side)] or rest[-1:]
    if not _names(first, said[-1]):
        # Without a name, a relation with an unknown is still to be solved.
        said = [first, *said]
        if any(map(_is_open, said)):
            return None
    elif isinstance(first, t.Sym) and any(first.name in s.names for s in said):
        return None
    if not _is_open(said[-1]):
        # A formula before the value is an intermediate step: V = abc = 3.
        said = [side for side in said if not _is_open(side)]
    exact = [side for side in said if not _is_rounded(side)]
    if exact:
        kept = exact[-1]
    elif all(map(is_decimal, said)):
        kept = min(said, key=lambda side: side.ulp)
    else:
        kept = said[-1]
    return kept if all(_consistent(kept, side, prover) for side in said) else None


def is_name(node: t.Node) -> bool:
    match node:
        case t.Tuple(parts) | t.Matrix(_, parts):
            return bool(parts) and all(map(is_label, parts))
    return is_label(node)


def _names(first: t.Node, value: t.Node) -> bool:
    """Returns whether `first` can name `value`: (x, y) for a pair, A^2 for a matrix."""
    if isinstance(first, t.Tuple | t.Matrix):
        several = value.items if isinstance(value, t.Braces | t.Several) else (value,)
        return is_name(first) and all(_size(v) == _size(first) for v in several)
    if is_label(first):
        return True
    # A power of a matrix A names a matrix, but 2x = (1, 2) is unsolved.
    if not (isinstance(first, t.Pow) and isinstance(value, t.Matrix)):
        return False
    return isinstance(first.base, t.Sym) and first.base.name[:1].isupper()


def _size(node: t.Node) -> tuple[int, ...]:
    match node:
        case t.Tuple(items) | t.Matrix(1, items):
            return (len(items),)
        case t.Matrix(width, cells):
            return (width, len(cells))
    return ()


def _is_open(node: t.Node) -> bool:
    return isinstance(node, t.Expression) and t.contains(node, t.Sym, t.Call)


def is_distance(node: t.Node) -> bool:
    """Returns whether a node is |x|, which may have a value that x does not have."""
    match node:
        case t.Fn("abs", (t.Sym(name),)):
            return not name[:1].isupper()
    return False


def _consistent(kept: t.Node, part: t.Node, prover: Equality) -> bool:
    """Returns whether `part` equals `kept`, apart from rounding or a missing unit."""
    match kept, part:
        case t.Quantity(), t.Quantity():
            values = t.values_in_one_size(kept, part)
            same = kept.unit == part.unit
            return values is not None and same and _consistent(*values, prover)
        case t.Quantity(), t.Expression():
            return _consistent(kept.value, part, prover)
        case t.Expression(), t.Quantity():
            return _consistent(kept, part.value, prover)
    if not (isinstance(kept, t.Expression) and isinstance(part, t.Expression)):
        return kept == part
    if prover.equal(kept, part):
        return True
    for marked, other in ((kept, part), (part, kept)):
        # Intermediate steps may omit the sign: 180 - 45 = 135 degrees.
        signed = isinstance(marked, t.Degrees | t.Percent)
        if signed and type(other) is not type(marked):
            if prover.equal(marked.value, other):
                return True
    if is_decimal(kept):
        kept = t.Num(kept.value)
    if not (isinstance(part, t.Num) and is_decimal(part)):
        return False
    return prover.shows(part, kept, _SHOWN_DIGITS)


def _is_rounded(node: t.Node) -> bool:
    if isinstance(node, t.Expression):
        return is_decimal(node)
    return any(map(_is_rounded, t.children(node)))


def is_decimal(node: t.Node) -> bool:
    """Returns whether a node is a decimal, or an integer written after ≈."""
    return isinstance(node, t.Num) and node.ulp is not None


def labelled_values(node: t.Several | t.Braces) -> list[t.Node] | None:
    """Returns the values of "p = 5, q = 2" in the order of their labels, or None."""
    pairs = {}
    for part in node.items:
        match part:
            case t.Rel("=", t.Sym(name), value) if name not in pairs:
                pairs[name] = value
            case _:
                return None
    ordered = _AXES if tuple(pairs) == _AXES else sorted(pairs)
    return [pairs[name] for name in ordered]


def label_of(node: t.Rel) -> t.Node | None:
    return next(filter(is_name, (node.left, node.right)), None)


def name_one_function(
    one: t.Node | None, other: t.Node | None, named: frozenset[str] | None
) -> bool:
    """Returns whether two labels, such as y and f(x), may name the same function.

    `named`, the letters of the problem, must be known and not contain both y and f.
    """
    match one, other:
        case (t.Sym(y), t.Call(f, (t.Sym(x),))) | (t.Call(f, (t.Sym(x),)), t.Sym(y)):
            return named is not None and y != x and not {y, f} <= named
    return False


def function_of(label: t.Node) -> tuple[str, tuple[t.Node, ...]] | None:
    match label:
        case t.Call(name, arguments):
            return name, arguments
        case t.Sym(name):
            letter, _, index = name.partition("_")
            # f_x is a derivative, but a_n is a function of n.
            if letter and index in _COUNTING_LETTERS:
                return f"{letter}_", (t.Sym(index),)
    return None


def relates_names(node: t.Node) -> bool:
    related = isinstance(node, t.Rel) and node.op != "in"
    return related and t.contains(node.left, t.Sym) and t.contains(node.right, t.Sym)


def ascending(node: Any) -> Any:
    """Writes a > b as b < a, also in chains that begin with > or >=."""
    flipped = {">": "<", ">=": "<="}
    match node:
        case t.Rel(op, left, right) if op in flipped:
            return t.Rel(flipped[op], right, left)
        case t.Chain(steps) if steps[0].op in flipped:
            return t.Chain(tuple(ascending(step) for step in reversed(steps)))
    return node


def is_membership(node: t.Node) -> bool:
    r"""Returns whether a node has the form `k \in \mathbb{Z}`, except for the reals."""
    in_numbers = isinstance(node, t.Rel) and isinstance(node.right, t.Numbers)
    return in_numbers and node.op == "in"
