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
    substitute,
    symbols,
    walk,
)
from tools.curation.grammar import FORMULA, formulas

# What asks for the last formula, or orders to work out the only one; after it nothing.
_ASKS = re.compile(
    r"(?:\A\W*(?:simplify|expand|factor|multiply|divide|distribute|add|subtract)"
    r"|(?:\A|(?<!\bto)[^\w-])(?:find|what is|then|determine|calculate|compute|evaluate"
    r"|solve))(?: the)?(?: (?:exact )?(?:value of|equation|expression|product|quotient)"
    r"| for)?(?: the)?(?: expression)?[\s:$]*\Z",
    re.I,
)
_NO_MORE = re.compile(r"(?:[\s.?:=_$]|\\_|\\q?quad|\b(?:is|equals?)\b)*", re.I)
# Rounded, or read in two ways: log without its base, 1 1/2, [x], the digits or the line
# AB, an operation that the problem makes up, a dot between vectors.
_VAGUE = re.compile(
    r"dots|\.\.|…|log|lg|\d\s*\\[dt]?frac|\[|floor|\bround|nearest|approx|defin|operat"
    r"|digit|\bbase|vector|line\{|\bmod|\bremainder|%|[A-Z]\s*[A-Z]\b|[A-Za-z]\s*\*|\\ast"
)
_DECIMAL = re.compile(r"\d?\.\d|\.{2}|…")
_SIGNS_UNSAID = re.compile(r"\\(?:sqrt|sin|cos|tan|cot|sec|csc|arc)")


def refuted(problem: str, gold: str) -> str | None:
    """The formula of a problem that its gold is shown not to satisfy, or None."""
    *_, last = None, *FORMULA.finditer(problem)
    if not last or _VAGUE.search(problem) or _DECIMAL.search(gold):
        return None
    asks = _ASKS.search(problem[: last.start()])
    if not asks or not _NO_MORE.fullmatch(problem[last.end() :]):
        return None
    texts = [text.strip(" .,=") for text in formulas(problem)]
    nodes = {text: parse_answer(text).node for text in texts}
    alone = len(nodes) == 1 and not asks.start()
    try:
        for value in _values(parse_answer(gold).node):
            for text, left, right in _claims(nodes, texts[-1], value, alone):
                prover = Prover()
                if not prover.equal(left, right) and not prover.is_open:
                    return text
    except (Open, RecursionError):
        pass
    return None


def _claims(
    nodes: Mapping[str, Node | None], text: str, value: Node, alone: bool
) -> Iterator[tuple[str, Node, Node]]:
    """Formulas, and the two sides of each that are equal if the value of `text` is."""
    asked = nodes[text]
    equations = {t: n for t, n in nodes.items() if isinstance(n, Rel) and n.op == "="}
    given = [
        (node.left, node.right)
        for node in equations.values()
        if isinstance(node.left, Sym | Const) and not symbols(node.right)
    ]
    at: dict[Node, Node] = dict(given)
    if alone and text in equations and len(symbols(asked)) == 1:
        asked, at = Sym(*symbols(asked)), {}
    # One letter in two cases, the unknown given, or e for what is no logarithms' base.
    if len(at) < len(given) or {asked, Const("e")} & at.keys() or asked == Const("e"):
        return
    if isinstance(asked, Sym):
        at[asked] = value
        sides = [(text, node.left, node.right) for text, node in equations.items()]
    else:
        sides = [(text, asked, value)] if isinstance(asked, Expression) else []
    for text, *pair in sides:
        left, right = (substitute(side, at) for side in pair)
        letters = symbols(left) | symbols(right)
        closed = not letters or alone and symbols(right) <= symbols(left)
        of_letters = any(map(symbols, pair)) and _SIGNS_UNSAID.search(text)
        if closed and not of_letters and _is_plain(left) and _is_plain(right):
            yield text, left, right


def _is_plain(node: Node) -> bool:
    """Whether it can be read in one way: `\\cos 25^\\circ x` can in two."""
    return not contains(node, (Call, Sign)) and not any(
        isinstance(part, Fn)
        and any(
            isinstance(inner, Mul) and contains(inner, (Degrees, Fn, Pow))
            for inner in part.arguments
        )
        for part in walk(node)
    )


def _values(node: Node | None) -> Sequence[Node]:
    """What a gold says that the unknown equals, one value after the other."""
    if isinstance(node, Several | Braces):
        return [value for item in node.items for value in _values(item)]
    if isinstance(node, Rel) and node.op == "=" and isinstance(node.left, Sym):
        node = node.right
    return [node] if isinstance(node, Expression) else []
