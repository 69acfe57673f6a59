"""Whether an answer is finished, beside what its gold leaves.

A relation that is still to be solved, a sum, a remainder or a logarithm that nobody
worked out may well be equal to the gold, and leaves the last step to the
verifier.
"""

import contextlib
import itertools
from collections.abc import Iterator, Set

from ..equal.prover import Prover
from ..equal.regions import Regions
from ..parse.budget import Open
from ..parse.relations import function_of, is_decimal, is_label, steps_of
from ..parse.tree import (
    EULER,
    IMAGINARY,
    INFINITY,
    MINUS_ONE,
    ONE,
    REALS,
    Add,
    Based,
    Braces,
    Call,
    Chain,
    Choice,
    Const,
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
    Pow,
    Quantity,
    Ratio,
    Rel,
    Repeating,
    SetOp,
    Several,
    Sign,
    Sym,
    Tuple,
    children,
    contains,
    fold,
    is_integer,
    number,
    symbols,
    walk,
)
from .canonical import is_rational, shape_of

_FUNCTIONS = {
    "floor": "a rounding", "ceil": "a rounding", "abs": "an absolute value"
}  # fmt: skip
"""Functions of numbers that no answer needs."""
_KEPT_BASES = (number(10), EULER, IMAGINARY)
_EQUALITIES = frozenset(["=", "approx", "equiv"])
_TRANSCENDENTAL = {
    "log": "a logarithm", "sin": "a sine", "cos": "a cosine", "tan": "a tangent",
    "cot": "a cotangent", "sec": "a secant", "csc": "a cosecant",
    "arcsin": "an arcsine", "arccos": "an arccosine", "arctan": "an arctangent",
}  # fmt: skip
"""Functions that an answer does not need where its value is rational."""


def unfinished(answer: Node, gold: Node) -> str | None:
    """What is still to be done in an answer, of a kind that is done in its gold."""
    if not contains(gold, Rel | Interval | SetOp) or _solved(gold):
        if any(not _is_solved(part) for part in _relations(answer)):
            return "leaves a relation to be solved"
    return None


def left_to_evaluate(answer: Node, gold: Node) -> str | None:
    """The function of numbers or of sets that an answer leaves, its gold does not."""
    functions = _FUNCTIONS | (_TRANSCENDENTAL if is_number(gold) else {})
    own = {part.name for part in walk(gold) if isinstance(part, Fn)}
    for part in walk(answer):
        if isinstance(part, Fn) and part.name in functions and part.name not in own:
            if not symbols(part):
                return f"leaves {functions[part.name]} to be evaluated"
    if _leaves_sets(answer) and not _leaves_sets(gold):
        return "leaves an operation on sets to be carried out"
    return None


def unevaluated(answer: Node, gold: Node) -> bool:
    """Whether an answer leaves arithmetic to be done where the gold is literal.

    Args:
      answer: the tree of the answer, as written.
      gold: that of the gold: literal where all its numbers are.
    """
    wanted = list(_numbers_in(gold))
    if _cancels(answer, gold):
        return True
    if not wanted:
        return pending(answer) > pending(gold)
    if not all(map(is_literal, wanted)):
        return pending(answer) > pending(gold)
    if any(isinstance(p, Const) and p != INFINITY for n in wanted for p in walk(n)):
        return False
    given = list(_numbers_in(answer))
    if any(isinstance(number, Degrees) for number in wanted):
        given = [number for number in given if not contains(number, Const)]
    return not all(map(is_literal, given))


def pending(node: Node) -> int:
    """Counts the steps of arithmetic that an expression leaves to be carried out.

    Like terms are to be added, numbers and powers of one base to be multiplied, powers
    of numbers to be raised, and fractions in a denominator to be inverted.
    """
    if isinstance(node, Matrix):  # a factor before it stands in each of its cells
        return sum(pending(cell) for cell in node.cells if isinstance(cell, Add))
    steps = sum(map(pending, children(node)))
    match node:
        case Add() if is_literal(node):
            return 0
        case Add(terms):
            parts = [_split(shape_of(term))[1] for term in _flat(Add, terms)]
            return steps + len(parts) - len(set(parts))
        case Mul() if is_literal(node):
            return 0
        case Mul(factors):
            return steps + _repeated(_flat(Mul, factors))
        case Pow(Mul() as below, exponent) if exponent == MINUS_ONE:
            return steps + any(_is_inverse(part) for part in below.factors)
        case Pow(base, Num(exponent)) if exponent.denominator == 1 and exponent > 1:
            constant = not symbols(base) and base not in _KEPT_BASES
            return steps + (constant or isinstance(base, Mul | Pow))
    return steps


def _flat(kind: type, parts: tuple[Node, ...]) -> Iterator[Node]:
    """The terms of a sum or the factors of a product, signs left out."""
    for part in parts:
        if isinstance(part, kind):
            yield from _flat(kind, getattr(part, part.__slots__[0]))
        elif part != MINUS_ONE:
            yield part


def _split(term: Node) -> tuple[list[Node], Node]:
    """The rational factors of a term, and the rest of it."""
    factors = term.factors if isinstance(term, Mul) else (term,)
    numbers = [f for f in factors if is_rational(f)]
    rest = [f for f in factors if not is_rational(f)]
    return numbers, shape_of(Mul(tuple(rest)))


def _repeated(factors: Iterator[Node]) -> int:
    """How many factors have a base that another one has; numbers are of one base."""
    above, below, roots, bases = 0, 0, 0, []
    for factor in factors:
        inverse = _is_inverse(factor)
        inner = factor.base if isinstance(factor, Pow) and inverse else factor
        for part in _flat(Mul, (inner,)):
            base = part.base if isinstance(part, Pow) else part
            if isinstance(part, Num):
                above, below = above + (not inverse), below + inverse
            elif isinstance(part, Pow) and isinstance(base, Num):
                roots += not inverse
            elif not isinstance(base, Num):
                bases.append(shape_of(base))
    steps = max(0, above - 1) + max(0, below - 1) + max(0, roots - 1)
    return steps + len(bases) - len(set(bases))


def _is_inverse(node: Node) -> bool:
    return isinstance(node, Pow) and node.exponent == MINUS_ONE


def _cancels(answer: Node, gold: Node) -> bool:
    """Whether an answer has names that its value does not depend on."""
    if not all(isinstance(node, Expression) for node in (answer, gold)):
        return False
    return symbols(answer) > symbols(gold)


def _numbers_in(node: Node) -> Iterator[Node]:
    """The numbers that an answer gives; of 2 + 3 = 5 the plainest side."""
    match node:
        case Rel() | Chain() if all(s.op in _EQUALITIES for s in steps_of(node)):
            constant = [side for side in sides(node) if not symbols(side)]
            literal = [side for side in constant if is_literal(side)]
            yield from itertools.chain(*map(_numbers_in, (literal or constant)[-1:]))
        case Expression() | Quantity() | Ratio():
            # With letters it is perhaps a unit, or a vector.
            if not symbols(node) and not contains(node, Call):
                yield node
        case Choice(_, value):
            yield from _numbers_in(value)
        case Rel() | Chain() | Several() | Braces() | Tuple():
            for part in children(node):
                yield from _numbers_in(part)
        case Interval(low, high):
            yield from itertools.chain(_numbers_in(low), _numbers_in(high))


def is_literal(node: Node) -> bool:
    """Whether a number is written out: nothing is left to add, multiply or divide.

    Signs, fractions, mixed numbers, percent, scientific notation and a single power,
    factorial, binomial or other function are.
    """
    match node:
        case Quantity(Add(terms)) if _falls_in_units(terms):
            return True
        case Percent(value) | Degrees(value) | Quantity(value):
            return is_literal(value)
        case Mul((sign, value)) if sign == MINUS_ONE or isinstance(sign, Sign):
            return is_literal(value)
        case Mul((value, Mul((Num(),)))):  # 5 million
            return is_literal(value)
        case Mul((Num(), Pow(Num(base), exponent))) if base == 10 and (
            exponent != MINUS_ONE  # that of a quotient; written -1 is a product
        ):
            return _is_signed_integer(exponent)
        case Mul((Fn("log", (top,)), Pow(Fn("log", (bottom,)), exponent))):
            return exponent == MINUS_ONE and is_literal(top) and is_literal(bottom)
        case Mul((top, Pow(bottom, exponent))) if exponent == MINUS_ONE:
            return _is_fraction(top, bottom)
        case Ratio((top, bottom)):
            return _is_atom(top) and _is_atom(bottom)
        case Add((Num(whole, None), Mul((top, Pow(bottom))) as part)):
            value = fold(part)
            proper = isinstance(value, Num) and 0 < value.value < 1
            return proper and whole.denominator == 1 and _is_fraction(top, bottom)
        case Pow(base, _) if base == EULER:
            return True
        case Fn(_, arguments):
            return all(map(is_literal, arguments))
    return _is_atom(node)


def _is_atom(node: Node) -> bool:
    """Whether a node is a number, a power of one, a factorial or a binomial."""
    match node:
        case Mul((sign, value)) if sign == MINUS_ONE:
            return _is_atom(value)
        case Pow(Mul((Num(), Pow(Num(), below))), exponent) if below == MINUS_ONE:
            return _is_signed_integer(exponent)
        case Pow(Num(), exponent):
            return _is_signed_integer(exponent)  # that of a root is a quotient
        case Fn("fact" | "binom", arguments):
            return all(isinstance(part, Num) for part in arguments)
    return isinstance(node, Num | Repeating | Based | Const)


def _is_signed_integer(node: Node) -> bool:
    match node:
        case Mul((sign, value)) if sign == MINUS_ONE:
            return is_integer(value)
    return is_integer(node)


def _is_fraction(top: Node, bottom: Node) -> bool:
    """Whether a quotient is a fraction of whole numbers, one of them perhaps a power.

    Where its value is whole, it is a division to be carried out.
    """
    parts = [top, bottom]
    if not all(map(_is_atom, parts)) or not any(map(_is_signed_integer, parts)):
        return False
    if any(isinstance(p, Num | Repeating) and not is_integer(p) for p in parts):
        return False
    value = fold(Mul((top, Pow(bottom, MINUS_ONE))))
    return not is_integer(value) or fold(bottom) == ONE


def _falls_in_units(terms: tuple[Node, ...]) -> bool:
    """Whether a sum is 2 hours 30 minutes: numbers times sizes, at last 1."""
    last = terms[-1]
    return (
        isinstance(last, Mul)
        and last.factors[1:] == (ONE,)
        and all(
            isinstance(t, Mul) and len(t.factors) == 2 and is_literal(t.factors[0])
            for t in terms
        )
    )


def _leaves_sets(node: Node) -> bool:
    if not contains(node, SetOp):
        return False
    regions = Regions(Prover())
    with contextlib.suppress(Open):
        return any(
            isinstance(part, SetOp) and _is_to_carry_out(part, regions)
            for part in walk(node)
        )
    return False


def _is_to_carry_out(node: SetOp, regions: Regions) -> bool:
    """Whether sets that are joined or cut are written as one, or as fewer parts.

    Two intervals apart, the reals without some, an inequality with exceptions and
    whole numbers without end are so already. Names of sets leave nothing to be done.
    """
    left, right = sides = node.left, node.right
    if any(isinstance(side, Expression) for side in sides):
        return False
    finite = [isinstance(s, Braces) and not contains(s, Rel) for s in sides]
    match node.op:
        case "cap":
            return not any(isinstance(s, Rel) and s.op == "!=" for s in sides)
        case "minus":
            whole = left == REALS or isinstance(left, Numbers)
            kept = finite[1] or whole and not contains(right, Rel)
            return finite[0] or not kept
    if all(finite):
        return True
    read = [regions.read_as_region(fold(part)) for part in (node, left, right)]
    if None in read:
        return False
    both, *each = (len(region.intervals) for region in read)
    return both < sum(each)


def is_number(node: Node) -> bool:
    """Whether a tree as written is one rational number, whatever its unit."""
    return isinstance(fold(shape_of(node)), Num)


def notation(node: Node) -> str:
    """How a number is written, "expression" where more than one number is."""
    match node:
        case Based(_, base) if base != 10:
            return f"base {base}"
        case Percent() | Degrees():
            return type(node).__name__.lower()
    shape = shape_of(node)
    if isinstance(shape, Num | Repeating):
        return "decimal" if _has_places(node) else "integer"
    return "fraction" if is_rational(shape) else "expression"


def _has_places(node: Node) -> bool:
    return any(isinstance(part, Repeating) or is_decimal(part) for part in walk(node))


def _relations(node: Node) -> Iterator[Rel | Chain]:
    """The relations that an answer states, not those inside its expressions."""
    if isinstance(node, Rel | Chain):
        yield node
    elif isinstance(node, Several | Braces | Tuple | SetOp):
        for part in children(node):
            yield from _relations(part)


def _solved(gold: Node) -> bool:
    """Whether all that a gold relates is a name to a constant."""
    return all(
        _is_solved(part) and any(not symbols(side) for side in sides(part))
        for part in _relations(gold)
    )


def sides(node: Rel | Chain) -> list[Node]:
    """All that a relation relates, from the left."""
    steps = steps_of(node)
    return [steps[0].left, *(step.right for step in steps)]


def _is_solved(node: Rel | Chain) -> bool:
    """x = 5, 2 < x < 3, x in A; also two names, and the exact beside the rounded.

    f(x) = 2x + 1 is solved for f: its arguments are bound, and only f may not recur.
    """
    if any(step.op == "equiv" for step in steps_of(node)):
        return True
    stated = list(map(fold, sides(node)))
    named = [s for s in stated if is_label(s) or not isinstance(s, Expression)]
    if named:
        unknown = frozenset().union(*map(_unknowns, named))
        rest = [side for side in stated if side not in named]
        return len(named) > 1 or not any(_names_in(side) & unknown for side in rest)
    return not any(map(symbols, stated))


def _unknowns(label: Node) -> Set[str]:
    """What a label is about: its function, or its names where it has none."""
    function = function_of(label)
    if function is None or isinstance(label, Sym):
        return symbols(label)
    name, arguments = function
    own = {word.removesuffix("^-1") for word in name.split()}
    return own.union(*(_unknowns(a) for a in arguments if not isinstance(a, Sym)))


def _names_in(node: Node) -> Set[str]:
    """Names of variables and of functions."""
    calls = (part.name for part in walk(node) if isinstance(part, Call))
    return symbols(node).union(calls)
