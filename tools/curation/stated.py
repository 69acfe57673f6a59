"""A gold put to what its own problem states: an equation to solve, a value to work out.

"Simplify $A$" says that the answer equals A; "$2x + 1 = k$ and $x = 3$; what is $k$?"
that the equation holds of the answer. A gold of which the verifier shows the opposite
is wrong. What it cannot decide, or what may be read in two ways, says nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from rl.verifier.answers import parse_answer
from rl.verifier.budget import Open
from rl.verifier.equality import Prover
from rl.verifier.nodes import (
    PI,
    Braces,
    Call,
    Const,
    Degrees,
    Expression,
    Fn,
    Mul,
    Node,
    Pow,
    Rel,
    Several,
    Sign,
    Sym,
    contains,
    is_integer,
    substitute,
    symbols,
    walk,
)
from tools.curation.grammar import FORMULA, asked_formula, formulas

# Nothing but formulas that hold at once: "If F and F,".
_DATA = re.compile(r"\W*(?:if|given(?: that)?|when|let)?(?:\W|\band\b)*", re.I)
# Rounded, or read in two ways: log without its base, 1 1/2, [x], the digits or the line
# AB, an operation that the problem makes up, a dot between vectors.
_VAGUE = re.compile(
    r"dots|\.\.|…|log|lg|\d\s*\\[dt]?frac|\[|floor|\bround|nearest|approx|defin|operat"
    r"|digit|\bbase|vector|line\{|\bmod|\bremainder|%|[A-Z]\s*[A-Z]\b|[A-Za-z]\s*\*|\\ast"
)
_ROUNDED = re.compile(r"\d?\.\d|\.{2}|…|%")
_ANGLES = frozenset("sin cos tan cot sec csc".split())


def refuted(problem: str, gold: str) -> str | None:
    """The formula of a problem that its gold is shown not to satisfy, or None."""
    found, answer = asked_formula(problem), parse_answer(gold)
    if not found or _VAGUE.search(problem) or _ROUNDED.search(gold):
        return None
    before, order, text = found
    if answer.other is not None or not _DATA.fullmatch(FORMULA.sub(" ", before)):
        return None
    asked = parse_answer(text).node
    data = {said: parse_answer(said).node for said in formulas(before)}
    if not data and "solve" in order.lower() and isinstance(asked, Rel):
        data[text], asked = asked, Sym(next(iter(symbols(asked)), ""))
    try:
        for value in _values(answer.node):
            # The verifier takes degrees without their sign, and the other way round.
            bare = value.value if isinstance(value, Degrees) else Degrees(value)
            fails = [_failing(data, text, asked, v) for v in (value, bare)]
            if all(fails):
                return fails[0]
    except (Open, RecursionError):
        pass
    return None


def _failing(
    data: Mapping[str, Node | None], text: str, asked: Node | None, value: Node
) -> str | None:
    """The first formula shown to be false if the value of `asked` is this one."""
    for said, left, right in _claims(data, text, asked, value):
        prover = Prover()
        if not prover.equal(left, right) and not prover.is_open:
            return said
    return None


def _claims(
    data: Mapping[str, Node | None], text: str, asked: Node | None, value: Node
) -> Iterator[tuple[str, Node, Node]]:
    """Formulas, and the two sides of each that are equal if the value is right."""
    equations = {t: n for t, n in data.items() if isinstance(n, Rel) and n.op == "="}
    given = [
        (node.left, node.right)
        for node in equations.values()
        if isinstance(node.left, Sym | Const) and not symbols(node.right)
    ]
    at: dict[Node, Node] = dict(given)
    # One letter in two cases, the unknown given, or e for what is no logarithms' base.
    if len(at) < len(given) or {asked, Const("e")} & at.keys() or asked == Const("e"):
        return
    # "If 1 + 1 = 3": a riddle, whose signs mean something else.
    if not all(map(symbols, equations.values())):
        return
    if isinstance(asked, Sym):
        at[asked] = value
        sides = [(said, node.left, node.right) for said, node in equations.items()]
    else:
        sides = [(text, asked, value)] if isinstance(asked, Expression) else []
    for said, *pair in sides:
        left, right = (substitute(side, at) for side in pair)
        known = symbols(left) == symbols(right) and not (data and symbols(left))
        if known and _is_plain(left, right) and _has_one_sign(*pair):
            yield said, left, right


def _has_one_sign(*sides: Node) -> bool:
    """No root or function of a letter, where cases are seldom told apart."""
    return not any(map(symbols, sides)) or not any(
        isinstance(part, Fn) or isinstance(part, Pow) and not is_integer(part.exponent)
        for side in sides
        for part in walk(side)
    )


def _is_plain(*sides: Node) -> bool:
    """Whether one reading is left: `\\cos 25^\\circ x` and `\\sin 30` have two."""
    return not any(contains(side, (Call, Sign)) for side in sides) and not any(
        isinstance(part, Fn)
        and any(
            isinstance(inner, Mul)
            and contains(inner, (Degrees, Fn, Pow))
            or part.name in _ANGLES
            and not contains(inner, Degrees)
            and PI not in walk(inner)
            for inner in part.arguments
        )
        for side in sides
        for part in walk(side)
    )


def _values(node: Node | None) -> Sequence[Node]:
    """What a gold says that the unknown equals, one value after the other."""
    if isinstance(node, Several | Braces):
        return [value for item in node.items for value in _values(item)]
    if isinstance(node, Rel) and node.op == "=" and isinstance(node.left, Sym):
        node = node.right
    return [node] if isinstance(node, Expression) else []
