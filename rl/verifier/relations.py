"""What relations say: the names on their left and the values on their right."""

from fractions import Fraction
from typing import Protocol

from rl.verifier.nodes import (
    MINUS_ONE,
    Assignment,
    Big,
    Braces,
    Call,
    Cases,
    Chain,
    Expression,
    Fn,
    Interval,
    Matrix,
    Mul,
    Node,
    Num,
    Numbers,
    Pow,
    Rel,
    SetOp,
    Several,
    Sym,
    Tuple,
    symbols,
)
from rl.verifier.tokens import GREEK

_LABEL_PREFIXES = frozenset({"Delta", "angle", "triangle"})
_VALUES = (Braces, Interval, SetOp, Tuple, Matrix, Cases)
_SHOWN_DIGITS = 1


class Equality(Protocol):
    """What `equality.Prover` offers here."""

    def equal(self, left: Node, right: Node) -> bool: ...

    def shows(self, decimal: Num, exact: Node, least: int) -> bool: ...


def is_label(node: Node) -> bool:
    """Whether a node names a quantity: x, f(x), |AB|, cos A, an integral; not x + y."""
    match node:
        case Sym() | Big():
            return True
        case Call(name):
            return name != "…"
        case Fn(_, (argument,)):
            return is_label(argument)
        case Mul((Pow(Sym("f" | "g" | "h"), exponent), Sym())):
            return exponent == MINUS_ONE  # the inverse function's value
        case Mul(factors):
            names = [p.name if isinstance(p, Sym) else "" for p in factors]
            if names[0] in _LABEL_PREFIXES:
                names = names[1:]
                return len(names) == 1 or all(name[:1].isupper() for name in names)
            return all(name[:1].isupper() for name in names)
    return False


def wordy(label: Node) -> bool:
    """A label in words ("area"), which may stand for any symbol; alpha is no word."""
    if not isinstance(label, Sym) or label.name in GREEK:
        return False
    return len(label.name) > 1 and label.name.isalpha()


def steps_of(node: Rel | Chain) -> tuple[Rel, ...]:
    return node.steps if isinstance(node, Chain) else (node,)


def value_of(node: Rel | Chain, prover: Equality) -> Node | None:
    """What a relation says its left side is: 5 for `x = 5`, `5 = x`, `S = 2+3 = 5`.

    None for an equation proper (x + y = 3) and for a contradiction (5 = 6). A decimal
    beside an exact number must be that number rounded.
    """
    steps = tuple(map(_with_places, steps_of(node)))
    if any(step.op not in ("=", "approx", "in") for step in steps):
        return None
    first, last = steps[0].left, steps[-1].right
    if any(map(_is_distance, (first, last))):
        return None
    if len(steps) == 1 and (steps[0].op == "in" or isinstance(last, _VALUES)):
        return None if isinstance(last, Numbers) else last
    if len(steps) == 1 and is_label(last) and not is_label(first):
        first, last = last, first
        return last if not symbols(last) & symbols(first) else None
    known = [step.right for step in steps if not is_label(step.right)] or [last]
    if is_label(first):
        if isinstance(first, Sym) and symbols(first) & symbols(last):
            return None
    elif len(steps) == 1 or symbols(known[0]):
        if symbols(first) or not isinstance(first, Expression):
            return _with_tail(steps)
        known = [first, *known]
    if not symbols(known[-1]):
        known = [part for part in known if not symbols(part)]
    if all(isinstance(part, Expression) for part in known):
        exact = [part for part in known if not is_decimal(part)]
        kept = exact[-1] if exact else min(known, key=lambda part: part.ulp)
        if all(_consistent(kept, part, prover) for part in known):
            return kept
        return None
    return known[-1] if len(known) == 1 else _with_tail(steps)


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
        case Rel(op, left, Call("…", (Num() as decimal,))):
            return Rel(op, left, decimal)
    return step


def _with_tail(steps: tuple[Rel, ...]) -> Node | None:
    """What stands before "approx": the exact form of an answer given in both."""
    if len(steps) == 1 and steps[0].op == "approx" and isinstance(steps[0].right, Num):
        return steps[0].left
    return None


def _consistent(kept: Node, part: Node, prover: Equality) -> bool:
    """Whether two forms of one value say the same."""
    if part is kept or prover.equal(kept, part):
        return True
    if is_decimal(kept):
        kept = Num(kept.value)
    return is_decimal(part) and prover.shows(part, kept, _SHOWN_DIGITS)


def is_decimal(node: Node) -> bool:
    """Whether a number was written with places behind a point."""
    return isinstance(node, Num) and node.ulp is not None


def labelled_values(node: Several | Braces | Assignment) -> list[Node] | None:
    """Values of "p = 5, q = 2" in the order of the labels."""
    pairs = {}
    parts = node.relations if isinstance(node, Assignment) else node.items
    for part in parts:
        if not isinstance(part, Rel) or part.op != "=":
            return None
        if not isinstance(part.left, Sym) or part.left.name in pairs:
            return None
        pairs[part.left.name] = part.right
    return [pairs[name] for name in sorted(pairs)]


def without_tuple_label(node: Node) -> Node:
    """(1, 2) for `(x, y) = (1, 2)`."""
    if isinstance(node, Rel) and isinstance(node.left, Tuple):
        if isinstance(node.right, Tuple):
            return node.right
    return node


def label_of(node: Rel) -> Node | None:
    if is_label(node.left) or isinstance(node.left, Tuple):
        return node.left
    return node.right if is_label(node.right) else None


def is_y_of_x(first: Node, second: Node) -> bool:
    """y and f(x) are two names of one thing."""
    kinds = {type(first), type(second)}
    return kinds == {Sym, Call} and Sym("y") in (first, second)


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
