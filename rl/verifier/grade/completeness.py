"""Decides whether an answer leaves more to solve or calculate than its gold."""

import math
from collections.abc import Iterator, Set
from fractions import Fraction

from flint import fmpz

from ..equal.prover import Prover
from ..equal.regions import Regions
from ..parse import tree as t
from ..parse.relations import function_of, is_decimal, is_label, steps_of
from .canonical import is_rational, shape_of

_ROUNDING = frozenset("floor ceil abs".split())
"""Functions of numbers that a finished answer needs only if its gold has them."""
_KEPT_BASES = (t.number(10), t.EULER, t.IMAGINARY, t.Const("pi"))
_MAX_FACTORED = 2**40
_HALF = t.Pow(t.number(2), t.MINUS_ONE)
_EQUALITIES = frozenset(["=", "approx", "equiv"])
_LISTS = t.Several | t.Braces | t.Tuple
_TRANSCENDENTAL = frozenset("log sin cos tan cot sec csc arcsin arccos arctan".split())
"""Functions that no answer needs if its gold has none of them, no variable and no i."""


def unfinished(answer: t.Node, gold: t.Node) -> str | None:
    """Returns a reason if only the answer has an unsolved relation, else None."""
    for part in _relations(gold):  # a gold such as y = 2x also allows unsolved ones
        if not _is_solved(part) or all(side.names for side in sides(part)):
            return None
    solved = all(map(_is_solved, _relations(answer)))
    return None if solved else "leaves a relation to be solved"


def left_to_evaluate(answer: t.Node, gold: t.Node, prover: Prover) -> str | None:
    """Returns a reason if only the answer has functions or sets to evaluate."""
    own = {part.name for part in t.walk(gold) if isinstance(part, t.Fn)}
    # A complex gold may have a polar form.
    algebraic = not gold.names and t.IMAGINARY not in t.walk(gold)
    algebraic &= own.isdisjoint(_TRANSCENDENTAL)
    refused = (_ROUNDING | (_TRANSCENDENTAL if algebraic else set())) - own
    for part in t.walk(answer):
        if isinstance(part, t.Fn) and part.name in refused and not part.names:
            return f"leaves the function {part.name} to be evaluated"
    regions = Regions(prover)
    if _leaves_sets(answer, regions) and not _leaves_sets(gold, regions):
        return "leaves an operation on sets to be carried out"
    return None


def unevaluated(answer: t.Node, gold: t.Node) -> bool:
    """Returns whether an answer leaves more arithmetic to be done than its gold.

    If the numbers in the gold are literal, without constants such as pi, the numbers in
    the answer must be literal. Otherwise the answer may not have more `pending` steps.
    26 * 10^2, unlike engineering notation, is literal only if the gold has 10^n too.
    """
    if _cancels(answer, gold):
        return True
    wanted = _numbers_in(gold)
    parts = [part for number in wanted for part in t.walk(number)]
    constants = any(isinstance(p, t.Const) and p != t.INFINITY for p in parts)
    if constants or not wanted or not all(map(is_literal, wanted)):
        return pending(answer) > pending(gold)
    given = _numbers_in(answer)
    if any(isinstance(value, t.Degrees) for value in wanted):
        given = [value for value in given if not t.contains(value, t.Const)]
    if not any(map(_scientific, parts)):
        products = [_scientific(part) for value in given for part in t.walk(value)]
        if any(p and not 1 <= p[0] < 10 and p[1] % 3 for p in products):
            return True
    return not all(map(is_literal, given))


def _scientific(node: t.Node) -> tuple[Fraction, Fraction] | None:
    """Returns (4.5, 33) for 4.5 * 10^33, without signs; None for other numbers."""
    match node:
        case t.Mul((first, t.Pow(t.Num(base), exponent))) if base == 10 and (
            exponent != t.MINUS_ONE  # marks a quotient; a written -1 is a product
        ):
            mantissa, power = _unsigned(first), _unsigned(exponent)
            if isinstance(mantissa, t.Num) and t.is_integer(power):
                return abs(mantissa.value), power.value
    return None


def pending(node: t.Node) -> int:
    """Counts the steps of arithmetic that an expression leaves to be carried out.

    A step adds like terms, multiplies numbers or powers of one base, raises a number,
    product or power to a power, or inverts a fraction in a denominator.
    """
    if isinstance(node, t.Matrix):  # each cell contains the matrix's factor
        return sum(pending(cell) for cell in node.cells if isinstance(cell, t.Add))
    if isinstance(node, t.Rel | t.Chain):  # the simplest side: 5 in 2 + 3 = 5
        return min(map(pending, values_in(node)), default=0)
    steps = sum(map(pending, t.children(node)))
    match node:
        case t.Mul((sign, _)) if sign == t.MINUS_ONE:
            return steps
        case t.Add() | t.Mul() if is_literal(node):
            return 0
        case t.Add(terms):
            parts = [_without_numbers(shape_of(term)) for term in _terms(terms)]
            return steps + len(parts) - len(set(parts))
        case t.Mul(factors):
            return steps + _repeated(_flat(t.Mul, factors))
        case t.Pow(t.Mul() as below, exponent) if exponent == t.MINUS_ONE:
            parts = [p for p in (below, *below.factors) if isinstance(p, t.Mul)]
            return steps + any(any(map(_is_inverse, p.factors)) for p in parts)
        case t.Pow(t.Add(terms), exponent) if exponent == t.MINUS_ONE:
            # With variables, M/2 and uv/c^2 are usual; x/(1 - x) is not.
            products = [term for term in terms if isinstance(term, t.Mul)]
            bases = [f.base for p in products for f in p.factors if _is_inverse(f)]
            sums = any(isinstance(base, t.Add) for base in bases)
            return steps + (sums if node.names else bool(bases))
        case t.Pow(base, t.Num(exponent)) if exponent.denominator == 1 and exponent > 1:
            constant = not base.names and base not in _KEPT_BASES
            return steps + (constant or isinstance(base, t.Mul | t.Pow))
    return steps


def _flat(kind: type, parts: tuple[t.Node, ...]) -> Iterator[t.Node]:
    for part in parts:
        if isinstance(part, kind):
            yield from _flat(kind, tuple(t.children(part)))
        elif part != t.MINUS_ONE:
            yield part


def _terms(terms: tuple[t.Node, ...]) -> Iterator[t.Node]:
    """Yields the terms of a sum and of sums in it; a part 2(x - 1) remains one term."""
    for term in _flat(t.Add, terms):
        factors = term.factors if isinstance(term, t.Mul) else ()
        inner = [f for f in factors if isinstance(f, t.Add)]
        if len(inner) == 1 and (not term.names or factors[:-1] == (t.MINUS_ONE,)):
            yield from _terms(inner[0].terms)
        else:
            yield term


def _without_numbers(term: t.Node) -> t.Node:
    factors = term.factors if isinstance(term, t.Mul) else (term,)
    return shape_of(t.Mul(tuple(_radical(f) for f in factors if not is_rational(f))))


def _radical(factor: t.Node) -> t.Node:
    r"""Returns \sqrt2 for \sqrt8 and 1/\sqrt8, which are multiples of it."""
    match factor.base if _is_inverse(factor) else factor:
        case t.Pow(t.Num(value) as number, exponent) if exponent == _HALF:
            if t.is_integer(number) and 0 < value < _MAX_FACTORED:
                odd = [int(p) for p, times in fmpz(int(value)).factor() if times % 2]
                return t.Pow(t.number(math.prod(odd)), _HALF)
    return factor


def _repeated(factors: Iterator[t.Node]) -> int:
    above, below, roots, bases = 0, 0, 0, []
    for factor in factors:
        inverse = _is_inverse(factor)
        inner = factor.base if isinstance(factor, t.Pow) and inverse else factor
        for part in _flat(t.Mul, (inner,)):
            base = part.base if isinstance(part, t.Pow) else part
            if isinstance(part, t.Num):
                above, below = above + (not inverse), below + inverse
            elif isinstance(part, t.Pow) and isinstance(base, t.Num):
                roots += not inverse
            elif not isinstance(base, t.Num):
                bases.append(shape_of(base))
    steps = max(0, above - 1) + max(0, below - 1) + max(0, roots - 1)
    return steps + len(bases) - len(set(bases))


def _is_inverse(node: t.Node) -> bool:
    return isinstance(node, t.Pow) and node.exponent == t.MINUS_ONE


def _cancels(answer: t.Node, gold: t.Node) -> bool:
    """Returns whether an answer has variables that its gold lacks: x/x for 1."""
    for part in t.walk(gold):
        # Letters may be units, options or words; sets have ends, but no values.
        if isinstance(part, t.Rel) and part.op not in _EQUALITIES:
            return False
        if not isinstance(part, t.Expression | t.Rel | t.Chain | _LISTS):
            return False
    wanted = t.Several(tuple(_values(gold, simplest=False)))
    return t.Several(tuple(_values(answer))).names > wanted.names


def _values(node: t.Node, *, simplest: bool = True) -> Iterator[t.Node]:
    """Yields the values in an answer: 1 and 2 for `x = 1, y = 2`.

    Of S = 2 + 3 = 5, yields 5 if `simplest`, otherwise 2 + 3 and 5.
    """
    match node:
        case t.Rel("in", _, right):
            stated = [right]
        case t.Rel() | t.Chain():
            stated = values_in(node) or sides(node)[-1:]
            if simplest and all(step.op in _EQUALITIES for step in steps_of(node)):
                constant = [side for side in stated if not side.names]
                literal = [side for side in constant if is_literal(side)]
                stated = (literal or constant or stated)[-1:]
        case t.Several() | t.Braces() | t.Tuple() | t.Interval() | t.Cases():
            stated = list(t.children(node))
        case t.Choice(_, value) | t.When(value):
            stated = [value]
        case _:
            if isinstance(node, t.Expression | t.Quantity | t.Ratio):
                yield node
            return
    for part in stated:
        yield from _values(part, simplest=simplest)


def _numbers_in(node: t.Node) -> list[t.Node]:
    return [v for v in _values(node) if not t.contains(v, t.Sym, t.Call)]


def is_literal(node: t.Node) -> bool:
    """Returns whether a number leaves nothing to add, multiply or divide.

    Fractions (but not 6/3), mixed numbers, percentages, scientific notation, a single
    integer power, and functions of literal numbers are literal.
    """
    match node:
        case t.Percent(value) | t.Degrees(value) | t.Quantity(value):
            return is_literal(value)
        case t.Mul((sign, value)) if sign == t.MINUS_ONE or isinstance(sign, t.Sign):
            return is_literal(value)
        case t.Mul((value, t.Mul((t.Num(),)))):  # for instance 5 million
            return is_literal(value)
        case t.Mul() if _scientific(node):
            return True
        case t.Mul((t.Fn("log", (top,)), t.Pow(t.Fn("log", (bottom,)), exponent))):
            return exponent == t.MINUS_ONE and is_literal(top) and is_literal(bottom)
        case t.Mul((top, t.Pow(bottom, exponent))) if exponent == t.MINUS_ONE:
            return _is_fraction(top, bottom)
        case t.Ratio((top, bottom)):
            return _is_atom(top) and _is_atom(bottom)
        case t.Add(
            (t.Num(whole, None), t.Mul((top, t.Pow(bottom, exponent))) as part)
        ) if exponent == t.MINUS_ONE:
            value = t.fold(part)
            proper = isinstance(value, t.Num) and 0 < value.value < 1
            return proper and whole.denominator == 1 and _is_fraction(top, bottom)
        case t.Pow(base, _) if base == t.EULER:
            return True
        case t.Fn(_, arguments):
            return all(map(is_literal, arguments))
    return _is_atom(node)


def _is_atom(node: t.Node) -> bool:
    node = _unsigned(node)
    match node:
        case t.Pow(t.Mul((t.Num(), t.Pow(t.Num(), below))), exponent) if (
            below == t.MINUS_ONE
        ):
            return t.is_integer(_unsigned(exponent))
        case t.Pow(t.Num(), exponent):
            # The exponent of a root is a quotient.
            return t.is_integer(_unsigned(exponent))
        case t.Fn("fact" | "binom", arguments):
            return all(isinstance(part, t.Num) for part in arguments)
    return isinstance(node, t.Num | t.Repeating | t.Based | t.Const)


def _unsigned(node: t.Node) -> t.Node:
    while isinstance(node, t.Mul) and node.factors[:-1] == (t.MINUS_ONE,):
        node = node.factors[1]
    return node


def _is_fraction(top: t.Node, bottom: t.Node) -> bool:
    parts = [top, bottom]
    whole = any(t.is_integer(_unsigned(part)) for part in parts)
    if not whole or not all(map(_is_atom, parts)):
        return False
    if any(isinstance(p, t.Num | t.Repeating) and not t.is_integer(p) for p in parts):
        return False
    match top, bottom:
        case (t.Fn(), _) | (_, t.Pow(t.Mul())):  # 8!/24 and 2/(4/7)^2
            return False
    # A quotient with an integer value is still to be divided, unless it divides by 1.
    value = t.fold(t.Mul((top, t.Pow(bottom, t.MINUS_ONE))))
    return not t.is_integer(value) or t.fold(bottom) == t.ONE


def _leaves_sets(node: t.Node, regions: Regions) -> bool:
    sets = (part for part in t.walk(node) if isinstance(part, t.SetOp))
    return any(_is_to_carry_out(part, regions) for part in sets)


def _is_to_carry_out(node: t.SetOp, regions: Regions) -> bool:
    """Returns whether an operation on sets counts as not yet carried out."""
    left, right = sides = node.left, node.right
    if any(isinstance(side, t.Expression) for side in sides):
        return False
    finite = [isinstance(s, t.Braces) and not t.contains(s, t.Rel) for s in sides]
    match node.op:
        case "cap":
            return not any(isinstance(s, t.Rel) and s.op == "!=" for s in sides)
        case "minus":
            whole = left == t.REALS or isinstance(left, t.Numbers)
            kept = finite[1] or whole and not t.contains(right, t.Rel)
            return finite[0] or not kept
    if all(finite):
        return True
    read = [regions.read_as_region(t.fold(part)) for part in (node, left, right)]
    sizes = [regions.pieces(region) for region in read if region is not None]
    known = [size for size in sizes if size is not None]
    return len(known) == len(read) and known[0] < sum(known[1:])


def notation(node: t.Node) -> str:
    """Returns "integer", "decimal", "fraction", "base 8", ... or "expression"."""
    match node:
        case t.Based(_, base) if base != 10:
            return f"base {base}"
        case t.Percent() | t.Degrees():
            return type(node).__name__.lower()
    shape = shape_of(node)
    if isinstance(shape, t.Num | t.Repeating):
        parts = t.walk(node)
        places = any(isinstance(p, t.Repeating) or is_decimal(p) for p in parts)
        return "decimal" if places else "integer"
    return "fraction" if is_rational(shape) else "expression"


def _relations(node: t.Node) -> Iterator[t.Rel | t.Chain]:
    if isinstance(node, t.Rel | t.Chain):
        yield node
    elif isinstance(node, t.Several | t.Braces | t.Tuple | t.SetOp):
        for part in t.children(node):
            yield from _relations(part)


def values_in(node: t.Rel | t.Chain) -> list[t.Node]:
    return [side for side in sides(node) if not is_label(side)]


def sides(node: t.Rel | t.Chain) -> list[t.Node]:
    steps = steps_of(node)
    return [steps[0].left, *(step.right for step in steps)]


def _is_solved(node: t.Rel | t.Chain) -> bool:
    """Returns whether a relation is solved, as x = 5, 2 < x < 3 and f(x) = 2x are.

    Congruences, and relations between constants or several names, count as solved.
    """
    if any(step.op == "equiv" for step in steps_of(node)):
        return True
    stated = list(map(t.fold, sides(node)))
    named = [s for s in stated if is_label(s) or not isinstance(s, t.Expression)]
    if named:
        unknown = frozenset().union(*map(_unknowns, named))
        rest = [side for side in stated if side not in named]
        parts = (part for side in rest for part in t.walk(side))
        names = (part.name for part in parts if isinstance(part, t.Sym | t.Call))
        return len(named) > 1 or unknown.isdisjoint(names)
    return not any(side.names for side in stated)


def _unknowns(label: t.Node) -> Set[str]:
    function = function_of(label)
    if function is None or isinstance(label, t.Sym):
        return label.names
    name, arguments = function
    own = {word.removesuffix("^-1") for word in name.split()}
    return own.union(*(_unknowns(a) for a in arguments if not isinstance(a, t.Sym)))
