"""Moving through the tokens of an answer, and what all levels of the grammar share.

The parser is one class over five files, one for each level of the grammar:
`Cursor` <- `operands` <- `commands` <- `expressions` <- `quantities` <- `statements`.
A level calls the ones below it, and those above it through the methods named here.
"""

from rl.verifier import tree
from rl.verifier.tokens import Token
from rl.verifier.tree import Node, Unparsable

MAX_DEPTH = 80


class Cursor:
    """A position in a list of tokens."""

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bar_closes = False
        self.currency: str | None = None

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _is(self, value: str) -> bool:
        token = self._tokens[self._at]
        return token.value == value and token.kind == "op"

    def _accept(self, value: str) -> bool:
        if self._is(value):
            self._at += 1
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._accept(value):
            found = self._next.value or "the end"
            raise Unparsable(f"has {found[:20]!r} where {value!r} is due")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unparsable(f"is nested deeper than {MAX_DEPTH}")

    # --- higher levels of the grammar

    def _postfix(self) -> Node:
        """An operand with its powers, indices and marks."""
        raise NotImplementedError

    def _product(self) -> Node:
        """Operands multiplied and divided."""
        raise NotImplementedError

    def _juxtaposed(self, left: Node, token: Token) -> Node:
        """An operand beside what stands left of it."""
        raise NotImplementedError

    def expression(self) -> Node:
        """An expression, or sets joined by set operations."""
        raise NotImplementedError

    def items(self) -> list[Node]:
        """What brackets hold: statements separated by commas."""
        raise NotImplementedError

    def statement(self) -> Node:
        """An expression, a relation, or a quantity with its unit."""
        raise NotImplementedError


def apply_sign(sign: Node, node: Node) -> Node:
    if node[0] == "based" and sign == tree.MINUS_ONE:
        return ("based", "-" + node[1], node[2])
    return node if sign == tree.ONE else tree.mul(sign, node)


def numeric(node: Node) -> Node:
    if tree.is_expression(node):
        return node
    raise Unparsable(f"calculates with a {node[0]}")
