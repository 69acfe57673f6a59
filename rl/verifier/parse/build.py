"""Builds nodes from what the grammar has read."""

from collections.abc import Sequence
from fractions import Fraction

from .tree import (
    EULER,
    INFINITY,
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
    Based,
    Braces,
    Call,
    Const,
    Degrees,
    Expression,
    Fn,
    Interval,
    Matrix,
    Mul,
    Node,
    Num,
    Percent,
    Pow,
    Repeating,
    Sym,
    Tuple,
    Unparsable,
    fold,
    is_integer,
    number,
)
from .words import COUNTING

_MAX_EXPONENT = 4_000


def quotient(top: Node, bottom: Node) -> Node:
    """Returns a quotient as written; dy/dx is a derivative and not y/x."""
    d = Sym("d")
    match bottom:
        case Mul((first, name)) if first == d:
            above = top.factors if isinstance(top, Mul) else (top,)
            if d in above:
                rest = Mul(tuple(part for part in above if part != d))
                return Call("derivative", (rest, name))
    return Mul((top, Pow(bottom, MINUS_ONE)))


def numeric(node: Node) -> Node:
    if isinstance(node, Expression):
        return node
    raise Unparsable(f"calculates with a {type(node).__name__.lower()}")


def unmarked(node: Node) -> Node:
    if isinstance(node, Percent | Degrees):
        raise Unparsable("has two signs for percent or degrees")
    return numeric(node)


def signed(sign: Node, node: Node) -> Node:
    if sign is ONE:
        return node
    if sign is MINUS_ONE:
        match node:
            case Degrees(value) | Percent(value):
                return type(node)(signed(sign, value))
            case Repeating(value, Num(shown, ulp)):
                return Repeating(-value, Num(-shown, ulp))
    return multiplied((sign, node))


def multiplied(factors: Sequence[Node]) -> Node:
    """A product; of a matrix and numbers, the matrix of the products."""
    matrices = [part for part in factors if isinstance(part, Matrix)]
    if len(matrices) != 1:
        return Mul(tuple(map(numeric, factors)))
    scale = tuple(numeric(part) for part in factors if part is not matrices[0])
    cells = tuple(Mul((*scale, numeric(cell))) for cell in matrices[0].cells)
    return Matrix(matrices[0].width, cells)


def transposed(node: Matrix) -> Matrix:
    width = node.width
    cells = [cell for column in range(width) for cell in node.cells[column::width]]
    return Matrix(len(node.cells) // width, tuple(cells))


def only(items: list[Node]) -> Node:
    if len(items) != 1:
        raise Unparsable("has several items where one is due")
    return items[0]


def decimal(text: str) -> Num:
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > _MAX_EXPONENT:
        raise Unparsable(f"has an exponent beyond {_MAX_EXPONENT}")
    places = len(mantissa.partition(".")[2])
    ulp = Fraction(1, 10**places) * Fraction(10) ** int(exponent or 0)
    return Num(Fraction(text), ulp if places else None)


def periodic(text: str, block: str) -> Fraction:
    whole, _, places = text.partition(".")
    scale = 10 ** len(places)
    period = 10 ** len(block) - 1
    value = Fraction(int((whole or "0") + places), scale)
    return value + Fraction(int(block), period * scale)


def based(digits: str, index: str) -> Node:
    """Returns a number in a base: 101 with the index 2 or two."""
    word = index.lower().strip(" ()~")
    base = COUNTING.index(word) if word in COUNTING else word
    whole, _, places = digits.partition(".")
    if not str(base).isdigit() or not (whole + places).isdigit():
        raise Unparsable("has a number with an index that is no base")
    if not 2 <= int(base) <= 36 or max(map(int, whole + places)) >= int(base):
        raise Unparsable(f"is no number in base {str(base)[:10]}")
    places = "." + places.rstrip("0") if places.strip("0") else ""
    return Based((whole.lstrip("0") or "0") + places, int(base))


def name_of(node: Node) -> str:
    if isinstance(node, Sym | Const):
        return node.name
    if isinstance(node, Mul):
        if all(isinstance(part, Sym | Const) for part in node.factors):
            return "".join(part.name for part in node.factors)
    if isinstance(node, Num):
        return str(node.value)
    raise Unparsable("has a mark over what is no name")


def apply(name: str, base: Node | None, arguments: list[Node]) -> Node:
    argument = only(arguments)
    if name == "exp":
        return Pow(EULER, argument)
    if name in ("log", "ln", "lg"):
        logarithm = Fn("log", (argument,))
        if name == "lg":
            base = number(10)
        if base is None or base == EULER:
            return logarithm
        return quotient(logarithm, Fn("log", (numeric(base),)))
    if name in ("sqrt", "cbrt"):
        return Pow(argument, Num(Fraction(1, 2 if name == "sqrt" else 3)))
    return Fn(name, (argument,))


def bracket_node(opening: str, closing: str, items: list[Node]) -> Node:
    if opening == "|":
        return Fn("abs", (numeric(only(items)),))
    if opening in ("floor(", "ceil("):
        return Fn(opening[:-1], (numeric(only(items)),))
    if opening == "set{":
        return Braces(tuple(items))
    if not items:
        raise Unparsable("has empty brackets")
    round_brackets = opening == "(" and closing == ")"
    if len(items) == 2 and (
        fold(items[0]) == MINUS_INFINITY or fold(items[1]) == INFINITY
    ):
        round_brackets = False
    if len(items) == 1:
        if (opening == "(") == (closing == ")"):
            return items[0]
    elif len(items) == 2 and not round_brackets:
        low, high = items
        return Interval(
            low,
            high,
            opening == "[" and fold(low) != MINUS_INFINITY,
            closing == "]" and fold(high) != INFINITY,
        )
    elif round_brackets or opening == "[" and closing == "]":
        return Tuple(tuple(items))
    raise Unparsable("has brackets that do not match")


def is_proper(node: Node) -> bool:
    """Whether a written quotient is a fraction of whole numbers between 0 and 1."""
    if not isinstance(node, Mul) or len(node.factors) != 2:
        return False
    top, bottom = node.factors
    return (
        is_integer(top)
        and isinstance(bottom, Pow)
        and is_integer(bottom.base)
        and 0 < top.value < bottom.base.value
    )
