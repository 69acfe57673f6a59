"""What relations say: the names on their left and the values on their right."""

from fractions import Fraction
from typing import Protocol

from .tokens import GREEK
from .tree import (
    Braces,
    Call,
    Cases,
    Chain,
    Degrees,
    Expression,
    Fn,
    Interval,
    Matrix,
    Mul,
    Node,
    Num,
    Numbers,
    Percent,
    Quantity,
    Ratio,
    Rel,
    SetOp,
    Several,
    Sym,
    Tuple,
    children,
    contains,
    symbols,
    values_in_one_size,
)

_LABEL_PREFIXES = frozenset({"Delta", "angle", "triangle"})
_VALUES = (Braces, Interval, SetOp, Tuple, Matrix, Cases)
_SHOWN_DIGITS = 1
_AXES = ("x", "y", "z", "w")
_COUNTING_LETTERS = frozenset({"i", "j", "k", "m", "n"})


class Equality(Protocol):
    """What `equality.Prover` offers here."""

    def equal(self, left: Node, right: Node) -> bool: ...

    def shows(self, decimal: Num, exact: Node, least: int) -> bool: ...


def is_label(node: Node) -> bool:
    """Whether a node names a quantity: x, f(x), |AB|, cos A, an integral; not x + y."""
    match node:
        case Sym():
            return True
        case Call(name):
            return name != "…"
        case SetOp() | Ratio():
            return all(map(is_label, children(node)))
        case Fn(_, (argument,)):
            return is_label(argument)
        case Mul(factors):
            names = [p.name if isinstance(p, Sym) else "" for p in factors]
            if names[0] in _LABEL_PREFIXES:
                names = names[1:]
                return len(names) == 1 or all(name[:1].isupper() for name in names)
            return all(name[:1].isupper() for name in names)
    return False


def wordy(label: Node) -> bool:
    """A label in words ("area"), which may stand for a symbol; alpha is no word."""
    if not isinstance(label, Sym) or label.name in GREEK:
        return False
    return len(label.name) > 1 and label.name.isalpha()


def steps_of(node: Rel | Chain) -> tuple[Rel, ...]:
    return node.steps if isinstance(node, Chain) else (node,)


def value_of(node: Rel | Chain, prover: Equality) -> Node | None:
    """What a relation says its left side is: 5 for `x = 5`, `5 = x`, `S = 2+3 = 5`.

    None for an equation proper (x + y = 3) and for a contradiction (5 = 6, 6 = x = 5):
    every side that says a value must say the same one. A decimal beside an exact number
    must be that number rounded.
    """
    steps = tuple(map(_with_places, steps_of(node)))
    if any(step.op not in ("=", "approx", "in") for step in steps):
        return None
    sides = [steps[0].left, *(step.right for step in steps)]
    if _is_distance(sides[0]) or _is_distance(sides[-1]):
        return None
    if any(step.op == "in" for step in steps):
        if len(steps) > 1 or not isinstance(sides[-1], _VALUES):
            return None
    elif is_name(sides[-1]) and not is_name(sides[0]):
        sides.reverse()
    first, *rest = sides
    said = [side for side in rest if not is_name(side)] or rest[-1:]
    if not _names(first, said[-1]):
        # Without a name, what has an unknown in it is still to be solved.
        said = [first, *said]
        if any(map(_is_open, said)):
            return None
    elif isinstance(first, Sym) and any(first.name in symbols(s) for s in said):
        return None
    if not _is_open(said[-1]):
        # A formula behind a name is on the way to its value: V = abc = 3.
        said = [side for side in said if not _is_open(side)]
    exact = [side for side in said if not _is_rounded(side)]
    if exact:
        kept = exact[-1]
    elif all(map(is_decimal, said)):
        kept = min(said, key=lambda side: side.ulp)
    else:
        kept = said[-1]
    return kept if all(_consistent(kept, side, prover) for side in said) else None


def is_name(node: Node) -> bool:
    """A label, or a tuple or matrix of labels."""
    match node:
        case Tuple(parts) | Matrix(_, parts):
            return bool(parts) and all(map(is_label, parts))
    return is_label(node)


def _names(first: Node, value: Node) -> bool:
    """Whether the first side is a name for what has the kind of this value."""
    if isinstance(first, Tuple | Matrix):
        several = value.items if isinstance(value, Braces | Several) else (value,)
        return is_name(first) and all(_size(v) == _size(first) for v in several)
    if is_label(first):
        return True
    if not isinstance(value, _VALUES) or not isinstance(first, Expression):
        return False
    # Of vectors: a + b; but 2x = (1, 2) is to be solved.
    names = symbols(first)
    return len(names) > 1 and all(n[:1].isupper() or n[:4] == "vec " for n in names)


def _size(node: Node) -> tuple[int, ...]:
    """Of a tuple, or of a matrix; a column is as good as a tuple."""
    match node:
        case Tuple(items) | Matrix(1, items):
            return (len(items),)
        case Matrix(width, cells):
            return (width, len(cells))
    return ()


def _is_open(node: Node) -> bool:
    """Whether an expression has names in it, of variables or of functions."""
    return isinstance(node, Expression) and bool(symbols(node) or contains(node, Call))


def _is_distance(node: Node) -> bool:
    """|x|, of a number: |x| = 3 is still to be solved, while |AB| is a length."""
    match node:
        case Fn("abs", (Sym(name),)):
            return not name[:1].isupper()
    return False


def _with_places(step: Rel) -> Rel:
    """An approximation by a whole number is to the nearest; dots end a decimal."""
    match step:
        case Rel("approx", left, Num(value, None)) if value.denominator == 1:
            return Rel("approx", left, Num(value, Fraction(1)))
    return step


def _consistent(kept: Node, part: Node, prover: Equality) -> bool:
    """Whether two forms of one value say the same; the kept one is the more exact."""
    if part is kept:
        return True
    match kept, part:
        case Quantity(), Quantity():
            values = values_in_one_size(kept, part)
            same = kept.unit == part.unit and values is not None
            return same and _consistent(*values, prover)
        case Quantity(value), Expression():
            return _consistent(value, part, prover)
        case Expression(), Quantity(value):
            return _consistent(kept, value, prover)
        case Expression(), Expression():
            return _says(kept, part, prover)
    if type(kept) is not type(part):
        return False
    for name in kept.__slots__:
        x, y = getattr(kept, name), getattr(part, name)
        if isinstance(x, tuple):
            if len(x) != len(y):
                return False
            if not all(_consistent(*pair, prover) for pair in zip(x, y, strict=True)):
                return False
        elif not (_consistent(x, y, prover) if isinstance(x, Node) else x == y):
            return False
    return True


def _says(kept: Node, part: Node, prover: Equality) -> bool:
    """Whether an expression says the value of another one, which is kept."""
    if prover.equal(kept, part):
        return True
    for marked, other in ((kept, part), (part, kept)):
        # The sign may be left out on the way: 180 - 45 = 135 degrees.
        if isinstance(marked, Degrees | Percent) and type(other) is not type(marked):
            if prover.equal(marked.value, other):
                return True
    if is_decimal(kept):
        kept = Num(kept.value)
    return is_decimal(part) and prover.shows(part, kept, _SHOWN_DIGITS)


def _is_rounded(node: Node) -> bool:
    """Whether a value is a decimal, or has one among its parts."""
    if isinstance(node, Expression):
        return is_decimal(node)
    return any(map(_is_rounded, children(node)))


def is_decimal(node: Node) -> bool:
    """Whether a number was written with places behind a point."""
    return isinstance(node, Num) and node.ulp is not None


def labelled_values(node: Several | Braces) -> list[Node] | None:
    """Values of "p = 5, q = 2" in the order of the labels.

    That of the alphabet, whatever order an answer chose to write them in; but w is the
    fourth coordinate where it was written behind x, y and z.
    """
    pairs = {}
    for part in node.items:
        if not isinstance(part, Rel) or part.op != "=":
            return None
        if not isinstance(part.left, Sym) or part.left.name in pairs:
            return None
        pairs[part.left.name] = part.right
    ordered = _AXES if tuple(pairs) == _AXES else sorted(pairs)
    return [pairs[name] for name in ordered]


def label_of(node: Rel) -> Node | None:
    """The name in a relation that has a value; |AB| is one of the segment AB."""
    label = next(filter(is_name, (node.left, node.right)), None)
    match label:
        case Fn("abs", (Mul() as segment,)):
            return segment
    return label


def function_of(label: Node) -> tuple[str, tuple[Node, ...]] | None:
    """Returns the name and the arguments of a label such as f'(x) or a_n."""
    match label:
        case Call(name, arguments):
            return name, arguments
        case Sym(name):
            letter, _, index = name.partition("_")
            # f_x and f_y are derivatives, not one function of x and y.
            if letter and index in _COUNTING_LETTERS:
                return f"{letter}_", (Sym(index),)
    return None


def may_stand_for(first: Node, second: Node, value: Node) -> bool:
    """Whether two labels may name one thing: y and f(x), V and V(r), A and "area".

    Args:
      first: a label.
      second: another one, which is not the same.
      value: what both are said to be.
    """
    for label, call in ((first, second), (second, first)):
        if isinstance(label, Sym) and isinstance(call, Call):
            names = {part.name for part in call.arguments if isinstance(part, Sym)}
            if len(names) == len(call.arguments):
                same = label.name == call.name and names <= symbols(value)
                # Not for what has a prime or is called a derivative.
                return same or label == Sym("y") and len(call.name) == 1
    return said_in_words(first, second)


def said_in_words(first: Node, second: Node) -> bool:
    """Whether one label is a word and the other one a symbol: "area" and A."""
    symbols_only = isinstance(first, Sym) and isinstance(second, Sym)
    return symbols_only and wordy(first) != wordy(second)


def relates_names(node: Node) -> bool:
    """a < b + c is about all its names, not a half-line of one."""
    return (
        isinstance(node, Rel)
        and node.op != "in"
        and bool(symbols(node.left) and symbols(node.right))
    )


def ascending(node: Node) -> Node:
    """A relation or chain with its greater side last."""
    flipped = {">": "<", ">=": "<="}
    match node:
        case Rel(op, left, right) if op in flipped:
            return Rel(flipped[op], right, left)
        case Chain(steps) if steps[0].op in flipped:
            return Chain(tuple(ascending(step) for step in reversed(steps)))
    return node


def is_membership(node: Node) -> bool:
    """`k \\in \\mathbb{Z}`: a condition, and never an answer beside others."""
    return isinstance(node, Rel) and node.op == "in" and isinstance(node.right, Numbers)


def assigns(node: Node) -> bool:
    return isinstance(node, Rel) and node.op == "=" and is_label(node.left)
