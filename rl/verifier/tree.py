"""The expression tree, and constructors that fold small exact numbers.

A node is a tuple whose first entry names it:

  ("num", value, ulp)       an exact Fraction; ulp is the unit of the last digit
                            shown where it was written as a decimal, else None
  ("sym", name)             a variable, an index and primes being part of its name
  ("const", name)           pi, e, i or inf
  ("pm", sign)              the sign of a plus-minus (+1) or a minus-plus (-1)
  ("add", a, b, ...)        ("mul", a, b, ...)        ("pow", base, exponent)
  ("fn", name, args...)     a known function
  ("call", name, args...)   an unknown one
  ("deg", a)                degrees               ("percent", a)           hundredths
  ("big", op, index, lower, upper, body)          op: sum, prod, int, lim

Answers that are more than one expression (lists, intervals, relations, words ...) are
described in `statements`. Nodes are hashable and compare by structure.
"""

from fractions import Fraction
from typing import Any

Node = tuple[Any, ...]

MAX_BITS = 20_000
"""Numbers with more bits than this are never computed, only compared as powers."""
_MAX_ULP_SHIFT = 400

EXPRESSIONS = frozenset(
    {"num", "sym", "const", "pm", "add", "mul", "pow", "fn", "call", "deg", "big"}
    | {"percent"}
)


class Unparsable(ValueError):
    """The text is no answer that the grammar knows, or it exceeds a cap."""


def is_expression(node: Node) -> bool:
    return node[0] in EXPRESSIONS


def number(value: int | Fraction, ulp: Fraction | None = None) -> Node:
    return ("num", Fraction(value), ulp)


ZERO, ONE, MINUS_ONE = number(0), number(1), number(-1)
PI, EULER, IMAGINARY = ("const", "pi"), ("const", "e"), ("const", "i")
INFINITY = ("const", "inf")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def add(*terms: Node) -> Node:
    """The sum, flat, with its numbers added up."""
    total, rest = Fraction(0), []
    for term in terms:
        for part in term[1:] if term[0] == "add" else (term,):
            if part[0] == "num" and _bits(total) + _bits(part[1]) < MAX_BITS:
                total += part[1]
            else:
                rest.append(part)
    if not rest:
        return number(total)
    if total:
        rest.append(number(total))
    return rest[0] if len(rest) == 1 else ("add", *rest)


def mul(*factors: Node) -> Node:
    """The product, flat, with its numbers multiplied."""
    if len(factors) == 2 and factors[0] == MINUS_ONE and factors[1][0] == "num":
        return ("num", -factors[1][1], factors[1][2])
    product, rest = Fraction(1), []
    for factor in factors:
        for part in factor[1:] if factor[0] == "mul" else (factor,):
            if part[0] == "num" and _bits(product) + _bits(part[1]) < MAX_BITS:
                product *= part[1]
            else:
                rest.append(part)
    if not rest:
        return number(product, _scaled_ulp(factors))
    if product != 1:
        rest.insert(0, number(product))
    return rest[0] if len(rest) == 1 else ("mul", *rest)


def _scaled_ulp(factors: tuple[Node, ...]) -> Fraction | None:
    """A decimal times an exact power of ten shows the same digits."""
    if len(factors) != 2 or factors[0][2] is None or factors[1][2] is not None:
        return None
    scale = factors[1][1]
    digits = str(max(scale.numerator, scale.denominator))
    if min(scale.numerator, scale.denominator) != 1 or digits.strip("0") != "1":
        return None
    return factors[0][2] * scale if len(digits) < _MAX_ULP_SHIFT else None


def negative(node: Node) -> Node:
    return mul(MINUS_ONE, node)


def power(base: Node, exponent: Node) -> Node:
    """The power, computed where both are numbers and the result is small."""
    if exponent == ONE:
        return base
    if base[0] == "num" and exponent[0] == "num" and exponent[1].denominator == 1:
        n = int(exponent[1])
        if (n > 0 or base[1]) and _bits(base[1]) * abs(n) < MAX_BITS:
            return number(base[1] ** n)
    if (
        base[0] == "pow"
        and exponent[0] == "num"
        and exponent[1].denominator == 1
        and base[2][0] == "num"
        and base[2][1].denominator == 1
    ):
        return power(base[1], mul(base[2], exponent))
    return ("pow", base, exponent)


def divide(top: Node, bottom: Node) -> Node:
    return mul(top, power(bottom, MINUS_ONE))


def symbols(node: Node) -> frozenset[str]:
    """Names of the variables of an expression or of anything built from them."""
    found: set[str] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        if part and part[0] == "sym":
            found.add(part[1])
        else:
            stack.extend(child for child in part if isinstance(child, tuple))
    return frozenset(found)


def contains(node: Node, kinds: frozenset[str]) -> bool:
    """Whether a node of one of these kinds occurs."""
    stack = [node]
    while stack:
        part = stack.pop()
        if part and part[0] in kinds:
            return True
        stack.extend(child for child in part if isinstance(child, tuple))
    return False


def count(node: Node, kind: str) -> int:
    """How many nodes of a kind there are."""
    found, stack = 0, [node]
    while stack:
        part = stack.pop()
        found += part[0] == kind
        stack.extend(child for child in part if isinstance(child, tuple))
    return found


def contains_constant(node: Node, name: str) -> bool:
    """Whether a constant of this name occurs."""
    wanted, stack = ("const", name), [node]
    while stack:
        part = stack.pop()
        if part == wanted:
            return True
        stack.extend(child for child in part if isinstance(child, tuple))
    return False


def substitute(node: Node, replacements: dict[Node, Node]) -> Node:
    """Replaces leaves, folding again on the way up."""
    if node in replacements:
        return replacements[node]
    if not any(isinstance(child, tuple) for child in node):
        return node
    parts = [
        substitute(child, replacements) if isinstance(child, tuple) else child
        for child in node
    ]
    build = {"add": add, "mul": mul, "pow": power}.get(node[0])
    return build(*parts[1:]) if build else tuple(parts)


def depth(node: Node) -> int:
    """How many nodes lie on the longest way down."""
    deepest, stack = 0, [(node, 1)]
    while stack:
        part, level = stack.pop()
        deepest = max(deepest, level)
        stack.extend((child, level + 1) for child in part if isinstance(child, tuple))
    return deepest


def size(node: Node) -> int:
    """How many nodes there are."""
    count, stack = 0, [node]
    while stack:
        part = stack.pop()
        count += 1
        stack.extend(child for child in part if isinstance(child, tuple))
    return count
