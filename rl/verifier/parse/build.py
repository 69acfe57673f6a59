"""Builds nodes from the operands and operators that the parser reads."""

import functools
from collections.abc import Sequence
from fractions import Fraction

from . import tree as t
from .words import COUNTING

_MAX_EXPONENT = 4_000
_D = t.Sym("d")


def quotient(top: t.Node, bottom: t.Node) -> t.Node:
    """Returns top / bottom without simplifying it; dy/dx becomes a derivative."""
    match bottom:
        case t.Mul((first, name)) if first == _D:
            above = top.factors if isinstance(top, t.Mul) else (top,)
            if _D in above:
                rest = t.Mul(tuple(part for part in above if part != _D))
                return t.Call("derivative", (rest, name))
    return t.Mul((top, t.Pow(bottom, t.MINUS_ONE)))


def numeric(node: t.Node) -> t.Node:
    if isinstance(node, t.Expression):
        return node
    raise t.Unparsable("uses something other than a number or formula in arithmetic")


def unmarked(node: t.Node) -> t.Node:
    if isinstance(node, t.Percent | t.Degrees):
        raise t.Unparsable("has two percent or degree signs after one number")
    return numeric(node)


def signed(sign: t.Node, node: t.Node) -> t.Node:
    if sign is t.ONE:
        return node
    if sign is t.MINUS_ONE:
        match node:
            case t.Degrees(value) | t.Percent(value):
                return type(node)(signed(sign, value))
            case t.Repeating(value, t.Num(shown, ulp)):
                return t.Repeating(-value, t.Num(-shown, ulp))
    return multiplied((sign, node))


def multiplied(factors: Sequence[t.Node]) -> t.Node:
    """Returns a product; the cells of a matrix are multiplied by the other factors."""
    if len(factors) == 1:
        return factors[0]
    matrices = [part for part in factors if isinstance(part, t.Matrix)]
    if len(matrices) != 1:
        return t.Mul(tuple(map(numeric, factors)))
    scale = tuple(numeric(part) for part in factors if part is not matrices[0])
    cells = tuple(t.Mul((*scale, numeric(cell))) for cell in matrices[0].cells)
    return t.Matrix(matrices[0].width, cells)


def only(items: list[t.Node]) -> t.Node:
    if len(items) != 1:
        raise t.Unparsable("has several values where one is expected")
    return items[0]


def decimal(text: str) -> t.Num:
    whole, _, places = text.partition(".")
    ulp = Fraction(1, 10 ** len(places))
    return t.Num(int(whole + places) * ulp, ulp if places else None)


@functools.lru_cache(maxsize=1024)
def numeral(text: str) -> t.Node:
    """Parses 4.5, or 4.5e33 as the product 4.5 * 10^33."""
    mantissa, _, exponent = text.lower().partition("e")
    if not exponent:
        return decimal(text)
    size = abs(int(exponent))
    if size > _MAX_EXPONENT:
        raise t.Unparsable(f"has an exponent whose size is above {_MAX_EXPONENT}")
    sign = t.MINUS_ONE if exponent[0] == "-" else t.ONE
    power = t.Pow(t.number(10), signed(sign, t.number(size)))
    return t.Mul((decimal(mantissa), power))


def periodic(text: str, block: str) -> Fraction:
    whole, _, places = text.partition(".")
    period = 10 ** len(block) - 1
    digits = int((whole or "0") + places) * period + int(block)
    return Fraction(digits, period * 10 ** len(places))


def based(digits: str, index: str) -> t.Node:
    word = index.lower().strip(" ()~")
    base = COUNTING.index(word) if word in COUNTING else word
    whole, _, places = digits.partition(".")
    if not str(base).isdigit() or not (whole + places).isdigit():
        raise t.Unparsable("has a number or an index that is not made of digits")
    if not 2 <= int(base) <= 36:
        raise t.Unparsable("has a base outside 2 to 36")
    if max(map(int, whole + places)) >= int(base):
        raise t.Unparsable(f"is not a number in base {base}")
    places = "." + places.rstrip("0") if places.strip("0") else ""
    return t.Based((whole.lstrip("0") or "0") + places, int(base))


def name_of(node: t.Node) -> str:
    parts = node.factors if isinstance(node, t.Mul) else (node,)
    if all(isinstance(part, t.Sym | t.Const) for part in parts):
        return "".join(part.name for part in parts)
    if isinstance(node, t.Num):
        return str(node.value)
    raise t.Unparsable("has an accent over something other than a name")


def apply(name: str, base: t.Node | None, arguments: list[t.Node]) -> t.Node:
    argument = only(arguments)
    if name == "exp":
        return t.Pow(t.EULER, argument)
    if name in ("log", "ln", "lg"):
        logarithm = t.Fn("log", (argument,))
        if name == "lg":
            base = t.number(10)
        if base is None or base == t.EULER:
            return logarithm
        return quotient(logarithm, t.Fn("log", (numeric(base),)))
    if name in ("sqrt", "cbrt"):
        return t.Pow(argument, t.Num(Fraction(1, 2 if name == "sqrt" else 3)))
    return t.Fn(name, (argument,))


def bracket_node(opening: str, closing: str, items: list[t.Node]) -> t.Node:
    if opening == "|":
        return t.Fn("abs", (numeric(only(items)),))
    if opening in ("floor(", "ceil("):
        return t.Fn(opening[:-1], (numeric(only(items)),))
    if opening == "set{":
        return t.Braces(tuple(items))
    if not items:
        raise t.Unparsable("has empty brackets")
    round_brackets = opening == "(" and closing == ")"
    if len(items) == 1:
        if (opening == "(") == (closing == ")"):
            return items[0]
    elif len(items) == 2:
        low, high = items
        ends = [t.fold(end) if t.contains(end, t.Const) else end for end in items]
        bounded = ends[0] != t.MINUS_INFINITY, ends[1] != t.INFINITY
        if not round_brackets or not all(bounded):
            closed = opening == "[" and bounded[0], closing == "]" and bounded[1]
            return t.Interval(low, high, *closed)
    if len(items) > 1 and (round_brackets or opening == "[" and closing == "]"):
        return t.Tuple(tuple(items))
    raise t.Unparsable("has brackets that do not match")


def is_proper(node: t.Node) -> bool:
    match node:
        case t.Mul((t.Num(top), t.Pow(t.Num(bottom)))):
            return top.denominator == bottom.denominator == 1 and 0 < top < bottom
    return False
