"""Whether an answer is finished, beside what its gold leaves.

A relation that is still to be solved, a sum, an integral, a remainder or a logarithm
that nobody worked out may well be equal to the gold, and leaves the last step to the
verifier.
"""

import contextlib
from collections.abc import Iterator, Set

from ..equal.prover import Prover
from ..equal.regions import Regions
from ..parse.budget import Open
from ..parse.relations import function_of, is_decimal, is_label, steps_of
from ..parse.tree import (
    REALS,
    Based,
    Big,
    Braces,
    Call,
    Chain,
    Congruence,
    Degrees,
    Expression,
    Fn,
    Interval,
    Node,
    Num,
    Numbers,
    Percent,
    Rel,
    Repeating,
    SetOp,
    Several,
    Sym,
    Tuple,
    children,
    contains,
    fold,
    symbols,
    walk,
)
from .canonical import is_rational, shape_of

_BIG_NAMES = {"sum": "sum", "prod": "product", "int": "integral", "lim": "limit"}
_FUNCTIONS = {
    "mod": "a remainder", "gcd": "a greatest common divisor", "max": "a maximum",
    "lcm": "a least common multiple", "min": "a minimum", "sgn": "a sign",
    "floor": "a rounding", "ceil": "a rounding", "abs": "an absolute value",
}  # fmt: skip
"""Functions of numbers that no answer needs."""
_TRANSCENDENTAL = {
    "log": "a logarithm", "sin": "a sine", "cos": "a cosine", "tan": "a tangent",
    "cot": "a cotangent", "sec": "a secant", "csc": "a cosecant",
    "arcsin": "an arcsine", "arccos": "an arccosine", "arctan": "an arctangent",
}  # fmt: skip
"""Functions that an answer does not need where its value is rational."""


def unfinished(answer: Node, gold: Node) -> str | None:
    """What is still to be done in an answer, of a kind that is done in its gold."""
    for kind, name in _BIG_NAMES.items():
        if _leaves(answer, kind) and not _has_big(gold, kind):
            return f"leaves a {name} to be evaluated"
    if not contains(gold, Rel | Congruence | Interval | SetOp) or _solved(gold):
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
        case "cap" if any(isinstance(side, Numbers) for side in sides):
            found = regions.read_as_region(fold(node))
            return found is not None and not found.of_integers
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


def _has_big(node: Node, kind: str) -> bool:
    return any(isinstance(part, Big) and part.kind == kind for part in walk(node))


def _leaves(answer: Node, kind: str) -> bool:
    """Whether an answer says its value by such an expression only."""
    if isinstance(answer, Rel | Chain):
        said = [s for s in sides(answer) if not isinstance(s, Sym | Call)]
        return bool(said) and all(_has_big(side, kind) for side in said)
    return _has_big(answer, kind)


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
