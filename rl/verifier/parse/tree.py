"""Defines the tree of an answer, and computes with exact numbers.

The parser builds the tree as written: `2 + 3` is a sum. `fold` turns it into 5. Folded
trees are compared, and written trees are checked for copies and unfinished arithmetic.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, dataclass_transform

MAX_BITS = 20_000
"""Maximum bits of a number that is computed; larger numbers remain expressions."""
_MAX_ULP_SHIFT = 400


class Unparsable(ValueError):
    """Signals text that the grammar does not know or that exceeds a limit."""


class _cached(functools.cached_property):
    def __get__(self, node: Any, owner: type | None = None) -> Any:
        # The base class acquires a lock in Python 3.11, which takes most of the time.
        value = self.func(node)
        setattr(node, self.func.__name__, value)  # faster than using `node.__dict__`
        return value


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Node:
    """Represents a part of an answer; each subclass is a dataclass."""

    def __init_subclass__(cls) -> None:
        # Nodes may not be changed, but frozen dataclasses take twice as long to create.
        dataclass(unsafe_hash="__hash__" not in vars(cls))(cls)

    @_cached
    def names(self) -> frozenset[str]:
        """Names of the variables in this node."""
        return frozenset([part.name for part in walk(self) if type(part) is Sym])

    @_cached
    def kinds(self) -> frozenset[type]:
        """Types of this node and of the nodes inside it."""
        return frozenset(map(type, walk(self)))

    if TYPE_CHECKING:
        # Lets type checkers accept attributes of nodes of unknown kind.
        def __getattr__(self, name: str) -> Any: ...

    def __str__(self) -> str:
        """Returns the node in readable form: Add(2, Mul(3, x))."""
        match self:
            case Num(value):
                return str(value)
            case Sym(name) | Const(name):
                return name
        parts = (getattr(self, name) for name in self.__match_args__)
        shown = (", ".join(map(str, p)) if type(p) is tuple else str(p) for p in parts)
        return f"{type(self).__name__}({', '.join(shown)})"


class Expression(Node):
    """Represents a node whose value is a number, known or unknown."""


class Num(Expression):
    """Represents an exact number; `ulp` is the unit of a decimal's last place."""

    value: Fraction
    ulp: Fraction | None = field(default=None, compare=False)

    # Fractions hash and compare slowly.
    def __hash__(self) -> int:
        return hash(self.value.as_integer_ratio())

    def __eq__(self, other: object) -> bool:
        if type(other) is not Num:
            return False
        return self.value.as_integer_ratio() == other.value.as_integer_ratio()


class Repeating(Expression):
    """Represents a repeating decimal: 0.16 with a bar over the 6, or 0.333..."""

    value: Fraction
    shown: Num | None = None  # 0.333 if written 0.333..., which may be truncated


class Sym(Expression):
    name: str  # of a variable or quantity, with its index and primes


class Const(Expression):
    name: str  # "pi", "e", "i" or "inf"


class Sign(Expression):
    """Represents a plus-minus sign: a factor of 1 or -1."""


class Add(Expression):
    terms: tuple[Node, ...]


class Mul(Expression):
    factors: tuple[Node, ...]


class Pow(Expression):
    base: Node
    exponent: Node


class Fn(Expression):
    name: str  # of a known function, such as sin, log, fact or floor
    arguments: tuple[Node, ...]


class Call(Expression):
    name: str  # of an unknown function, a derivative or an indexed expression
    arguments: tuple[Node, ...]


class Degrees(Expression):
    value: Node


class Percent(Expression):
    value: Node


class Several(Node):
    items: tuple[Node, ...]  # in any order
    joined: str = field(default=",", compare=False)  # or "and", "or"


class Braces(Node):
    items: tuple[Node, ...]  # of a set, a set builder (its condition) or a system


class Tuple(Node):
    items: tuple[Node, ...]  # coordinates; a pair may also be an open interval


class Interval(Node):
    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


class SetOp(Node):
    op: str  # "cup", "cap" or "minus"
    left: Node
    right: Node


class Numbers(Node):
    letter: str  # of a set of numbers, such as Z


class Rel(Node):
    op: str  # such as "=", "<=", "in" or "parallel"
    left: Node
    right: Node


class Chain(Node):
    steps: tuple[Rel, ...]  # which share their inner sides: a < x < b


class Quantity(Node):
    value: Node
    unit: str | frozenset[str]  # dimensions, or words
    scale: Fraction


class Ratio(Node):
    parts: tuple[Node, ...]


class Clock(Node):
    minutes: int  # since midnight or noon
    half: str | None  # "am" or "pm"
    of_day: bool = False  # `half` follows from an hour outside 1 to 12: 15:05


class Matrix(Node):
    width: int
    cells: tuple[Node, ...]


class Based(Node):
    """Represents a number by its digits in a base: 101 in base 2."""

    digits: str
    base: int

    @property
    def value(self) -> Fraction:
        whole, _, places = self.digits.partition(".")
        return Fraction(int(whole + places, self.base), self.base ** len(places))


class When(Node):
    value: Node
    condition: Node  # relations, words, or REALS for "always"


class Cases(Node):
    rows: tuple[When, ...]


class Word(Node):
    text: str


class Choice(Node):
    letter: str  # of an option: C in "(C) 12"
    answer: Node


def time_of_day(hours: int, minutes: int) -> Clock | None:
    """Returns a time of day, or None for 9:75. Hour 15 is 3 pm; hour 3 may be 3 pm."""
    if not (0 <= hours <= 24 and 0 <= minutes <= 59):
        return None
    of_day = not 1 <= hours <= 12
    half = ("pm" if 12 < hours < 24 else "am") if of_day else None
    return Clock(hours % 12 * 60 + minutes, half, of_day)


def number(value: int | Fraction, ulp: Fraction | None = None) -> Num:
    return Num(Fraction(value), ulp)


ZERO, ONE, MINUS_ONE = map(number, (0, 1, -1))
EULER, IMAGINARY, INFINITY = map(Const, ("e", "i", "inf"))
MINUS_INFINITY = Mul((MINUS_ONE, INFINITY))
SYMMETRIC = frozenset("= != approx equiv parallel perp".split())
"""Relations whose sides may be swapped."""
REALS = Interval(MINUS_INFINITY, INFINITY, False, False)


def children(node: Node) -> Sequence[Node]:
    kind = type(node)
    if kind is Mul:
        return node.factors
    if kind is Add:
        return node.terms
    if kind is Pow:
        return node.base, node.exponent
    if kind in _LEAVES:
        return ()
    found: list[Node] = []
    for name in node.__match_args__:
        part = getattr(node, name)
        if type(part) is tuple:
            found.extend(part)
        elif isinstance(part, Node):
            found.append(part)
    return found


def walk(node: Node) -> list[Node]:
    """Returns a node and all nodes inside it."""
    found = [node]
    for part in found:  # `found` grows during the loop
        if type(part) not in _LEAVES:
            found.extend(children(part))
    return found


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """Replaces each child by change(child); returns the same object if none changes."""
    if type(node) in _LEAVES:
        return node
    parts = [getattr(node, name) for name in node.__match_args__]
    values: list[Any] = []
    for part in parts:
        if isinstance(part, Node):
            part = change(part)
        elif type(part) is tuple and part:
            items = tuple(map(change, part))
            part = part if all(map(operator.is_, items, part)) else items
        values.append(part)
    return node if all(map(operator.is_, values, parts)) else type(node)(*values)


def contains(node: Node, *kinds: type) -> bool:
    """Returns whether a node, or a node inside it, has one of these types."""
    return not node.kinds.isdisjoint(kinds)


def depth(node: Node) -> int:
    """Returns the number of nodes on the longest path from a node to a leaf."""
    level, count = [node], 0
    while level:
        level, count = [child for part in level for child in children(part)], count + 1
    return count


def bits(value: int | Fraction) -> int:
    """Returns the greater of the bit lengths of the numerator and the denominator."""
    top, bottom = value.as_integer_ratio()
    return max(top.bit_length(), bottom.bit_length())


def _merged(
    kind: type, parts: tuple[Node, ...], combined: Callable[[Fraction, Fraction], Any]
) -> tuple[Fraction | None, list[Node]]:
    number: Fraction | None = None
    rest: list[Node] = []
    for outer in parts:
        for part in children(outer) if type(outer) is kind else (outer,):
            if type(part) is not Num:
                rest.append(part)
            elif number is None:
                number = part.value
            elif bits(number) + bits(part.value) < MAX_BITS:
                number = combined(number, part.value)
            else:
                rest.append(part)
    return number, rest


def add(*terms: Node) -> Node:
    """Returns the flattened sum; its numbers are added, unless they are too long."""
    total, rest = _merged(Add, terms, operator.add)
    if total or not rest:
        rest.append(Num(total or Fraction(0)))
    return rest[0] if len(rest) == 1 else Add(tuple(rest))


def mul(*factors: Node) -> Node:
    """Returns the flattened product; multiplies its numbers unless too long."""
    product, rest = _merged(Mul, factors, operator.mul)
    if not rest:
        return Num(Fraction(1) if product is None else product, _scaled_ulp(factors))
    if product is not None and product != 1:
        rest.insert(0, Num(product))
    return rest[0] if len(rest) == 1 else Mul(tuple(rest))


def _scaled_ulp(factors: tuple[Node, ...]) -> Fraction | None:
    decimals = [f for f in factors if isinstance(f, Num) and f.ulp is not None]
    if len(decimals) != 1 or len(factors) != 2:
        return None
    scale = abs((factors[1] if factors[0] is decimals[0] else factors[0]).value)
    if not scale or min(scale.numerator, scale.denominator) != 1:
        return None
    digits = str(max(scale.numerator, scale.denominator))
    if digits.strip("0") != "1" or len(digits) > _MAX_ULP_SHIFT:
        return None
    return decimals[0].ulp * scale


def values_in_one_size(a: Quantity, b: Quantity) -> tuple[Node, Node] | None:
    if a.scale == b.scale:
        return a.value, b.value
    if not (isinstance(a.value, Expression) and isinstance(b.value, Expression)):
        return None
    return mul(a.value, Num(a.scale)), mul(b.value, Num(b.scale))


def is_integer(node: Node) -> bool:
    return type(node) is Num and node.value.denominator == 1


def power(base: Node, exponent: Node) -> Node:
    """Returns a power; computes number^integer if the result is small."""
    if is_integer(exponent):
        n = exponent.value.numerator
        if n == 1:
            return base
        if type(base) is Num:
            top, bottom = base.value.as_integer_ratio()
            if (n > 0 or top) and bits(base.value) * abs(n) < MAX_BITS:
                return Num(Fraction(bottom, top) if n == -1 else base.value**n)
        elif type(base) is Pow and is_integer(base.exponent):
            # (x^2)^3 is x^6. The inverse of 1/0 is not 0, but x is taken as nonzero.
            inner = base.base
            nonzero = type(inner) in (Sym, Const) or type(inner) is Num and inner.value
            if base.exponent.value >= 0 or nonzero:
                return power(inner, mul(base.exponent, exponent))
    return Pow(base, exponent)


def divide(top: Node, bottom: Node) -> Node:
    return mul(top, power(bottom, MINUS_ONE))


_FOLDED: dict[type, Callable[..., Node]] = {Add: add, Mul: mul, Pow: power}
_LEAVES: frozenset[Any] = frozenset({Num, Sym, Const, Sign, Word})
for _leaf in _LEAVES:
    _leaf.kinds = frozenset([_leaf])


def fold(node: Node) -> Node:
    """Replaces sums, products and integer powers of numbers by their values."""
    if type(node) in _LEAVES:
        return node
    if (build := _FOLDED.get(type(node))) is not None:
        parts = children(node)
        return build(*[part if type(part) in _LEAVES else fold(part) for part in parts])
    if type(node) is Repeating:
        return Num(node.value)
    if type(node) is Rel and type(node.right) is Repeating:
        if node.right.shown is not None and type(node.left) not in (Sym, Call):
            node = Rel(node.op, node.left, node.right.shown)
    return rebuilt(node, fold)


def substitute(node: Node, replacements: dict[Node, Node]) -> Node:
    """Replaces leaves other than numbers, and folds the nodes that change."""
    if type(node) in _LEAVES:
        return replacements.get(node, node) if type(node) is not Num else node
    changed = rebuilt(node, lambda part: substitute(part, replacements))
    if changed is node:
        return node
    build = _FOLDED.get(type(changed))
    return build(*children(changed)) if build else changed
