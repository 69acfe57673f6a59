"""Quantities: expressions with a unit, a currency, a percent sign; and ratios."""

import re

from rl.verifier import tree
from rl.verifier.expressions import ExpressionParser
from rl.verifier.operands import CURRENCY
from rl.verifier.tree import Node, Unparsable
from rl.verifier.units import parse_unit

CONDITION = re.compile(r"(?:for|where|with)\b")
_PERCENT_WORDS = frozenset("percent pct percentage percents".split())
_ORDINALS = frozenset("th st nd rd".split())


class QuantityParser(ExpressionParser):
    """Reads an expression and the words that measure it."""

    def _quantity(self) -> Node:
        outer, self.currency = self.currency, None
        node = self.expression()
        if self._is(":") and not self._bar_closes:
            node = self._ratio(node)
        node = self._measured(node)
        self.currency = outer
        return node

    def _ratio(self, first: Node) -> Node:
        """3 : 5 : 7; but "C: 5" is a label and its value."""
        label = first[0] == "sym" and first[1].isupper() and len(first[1]) == 1
        if label and self._peek().kind != "sym":
            self._at += 1
            return ("rel", "=", first, self._quantity())
        parts = [first]
        while self._accept(":"):
            parts.append(self.expression())
        if not all(map(tree.is_expression, parts)):
            raise Unparsable("has a ratio of what are no numbers")
        return ("ratio", *parts)

    def _measured(self, node: Node) -> Node:
        words = self._unit_text()
        if self.currency is not None:
            if node[0] not in tree.EXPRESSIONS:
                raise Unparsable("has a currency sign before what is no number")
            if words and words not in _PERCENT_WORDS:
                words = " ".join(w for w in words.split() if w != "per")
                extra = parse_unit(words)
                if extra is None:
                    raise Unparsable(f"has a number beside {words[:40]!r}")
                node = tree.mul(node, tree.number(extra.multiplier))
            words = self.currency
        if not words or words in _ORDINALS:
            return node
        if words.split()[0] in _PERCENT_WORDS and tree.is_expression(node):
            return ("percent", node)
        if node[0] not in tree.EXPRESSIONS and node[0] not in ("ratio", "based"):
            if node[0] in ("tuple", "interval", "set", "cup"):
                return node if parse_unit(words) is not None else _refuse(words)
            return _refuse(words)
        if words.split()[0].startswith("degree"):
            rest = words.partition(" ")[2]
            if rest in ("", "angle"):
                return ("deg", node)
            words = rest
        reading = parse_unit(words)
        if reading is None:
            return _refuse(words)
        if reading.multiplier != 1:
            node = tree.mul(node, tree.number(reading.multiplier))
        if reading.unit is None:
            return node
        return ("unit", node, reading.unit, reading.scale)

    def _unit_text(self) -> str:
        """The words, and their exponents, that follow a number."""
        words: list[str] = []
        while True:
            token, after = self._next, self._peek()
            if token.kind == "text":
                value = token.value.strip(" .~")
                if CONDITION.match(value.lower()) and not value.lower().startswith(
                    "for each"
                ):
                    break
                words.append(value)
                self._at += 1
            elif not words and token.kind == "op" and token.value in CURRENCY:
                words.append(token.value)
                self._at += 1
            elif words and token.value == "^":
                self._at += 1
                exponent = self._argument()
                if exponent[0] != "num":
                    raise Unparsable("has a unit with an exponent that is no number")
                words.append(f"^ {exponent[1]}")
            elif token.value == "/" and token.kind == "op" and after.kind == "text":
                words.append("/")
                self._at += 1
            elif words and token.value in ("/", "*") and after.kind == "sym":
                words += [token.value, after.value]
                self._at += 2
            elif words and token.kind == "op" and token.value in (".", "-", "'"):
                self._at += 1
            elif words and token.kind == "sym" and token.spaced:
                words.append(token.value)
                self._at += 1
            elif not words and token.kind == "sym" and token.value in ("C", "F"):
                words.append(token.value)
                self._at += 1
            else:
                return " ".join(words).lower()
        return " ".join(words).lower()


def _refuse(words: str) -> Node:
    raise Unparsable(f"has a value beside {words[:40]!r}")
