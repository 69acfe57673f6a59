"""Moves through the tokens of an answer."""

from collections.abc import Callable, Collection, Sequence

from . import tree as t
from .tokens import SHOWN, Token

MAX_DEPTH = 80


class Cursor:
    # Methods that subclasses define and that their base classes call.
    _statement: Callable[[], t.Node]
    _items: Callable[[], list[t.Node]]
    _set_builder: Callable[[list[t.Node]], t.Node]
    condition_of: Callable[[Sequence[Token]], t.Node]
    _expression: Callable[[], t.Node]
    _product: Callable[[], t.Node]
    _sign: Callable[[], t.Node]
    _postfix: Callable[[], t.Node]
    _juxtaposed: Callable[[t.Node, Token], t.Node]

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bar_closes = False
        self._reversed = False
        self._currency: str | None = None
        self._group_ends: set[int] = set()  # positions of closing braces

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _is(self, value: str) -> bool:
        token = self._tokens[self._at]
        return token.value == value and token.kind == "op"

    def _is_any(self, values: Collection[str]) -> bool:
        token = self._tokens[self._at]
        return token.kind == "op" and token.value in values

    def _accept(self, value: str) -> bool:
        if self._is(value):
            self._at += 1
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._accept(value):
            if self._next.kind == "end":
                raise t.Unparsable(f"ends where {value!r} is expected")
            found = SHOWN.get(self._next.value, self._next.value)
            raise t.Unparsable(f"has '{found[:20]}' where {value!r} is expected")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise t.Unparsable(f"is nested deeper than {MAX_DEPTH}")
