"""Parses quantities: an expression, a ratio or a time, and its unit."""

import re

from . import tree as t
from .build import numeric, unmarked
from .expressions import ORDINALS, Expressions
from .tokens import Token
from .units import parse_unit

BEGINNING = "for|where|with|if|when|unless|since|because|otherwise|else"
CONDITION = re.compile(rf"\(?(?:{BEGINNING})\b")
_PERCENT_WORDS = frozenset("percent pct percentage percents".split())
_BEFORE_UNITS = frozenset(["(", "[", "/"])
_HALF_DAYS = {"am": "am", "pm": "pm", "a m": "am", "p m": "pm", "oclock": None}


class Quantities(Expressions):
    def _quantity(self) -> t.Node:
        if self._at_lone_atom():
            return self._operand()
        outer, self._currency = self._currency, None
        first = self._next
        node = self._expression()
        if self._is(":") and not self._bar_closes:
            node = self._ratio(node, first)
        token = self._next
        if self._currency or token.kind == "text" or token.value in _BEFORE_UNITS:
            node = self._measured(node)
        self._currency = outer
        return node

    def _ratio(self, first: t.Node, token: Token) -> t.Node:
        """Parses a ratio (3 : 5, 3:15), a time (3:05), or a label and value (C: 5)."""
        if isinstance(first, t.Sym) and len(first.name) == 1:
            if self._peek().kind != "sym":
                self._at += 1
                return t.Rel("=", first, self._quantity())
        minutes = self._peek().value
        if re.fullmatch("0[0-9]", minutes) and t.is_integer(first):
            if clock := t.time_of_day(int(first.value), int(minutes)):
                self._at += 2
                return clock
        parts = [first]
        while self._accept(":"):
            parts.append(self._expression())
        if not all(isinstance(part, t.Expression) for part in parts):
            raise t.Unparsable(
                "has a ratio with a part that is not a number or formula"
            )
        return t.Ratio(tuple(parts))

    def _measured(self, node: t.Node) -> t.Node:
        words = self._unit_text()
        if self._currency is not None:
            if not isinstance(node, t.Expression):
                raise t.Unparsable("has a currency sign that is not before a number")
            words = f"{self._currency} {words}"
        if not words or words.lower() in ORDINALS:
            return node
        first, _, rest = words.lower().replace("per cent", "percent").partition(" ")
        if first in _PERCENT_WORDS and isinstance(node, t.Expression):
            node, words = t.Percent(unmarked(node)), rest
        if isinstance(node, t.Percent):
            # "25% of her income" has no unit; "25% of half" is another number.
            whole = parse_unit(words) if words[:3] == "of " else None
            if not words or whole is not None and whole.multiplier == 1:
                return node
        if words.lower() in _HALF_DAYS:
            if clock := _with_half(node, _HALF_DAYS[words.lower()]):
                return clock
        if not isinstance(node, t.Expression | t.Ratio | t.Based):
            raise t.Unparsable(f"has words after a non-number: {words[:40]!r}")
        if first.startswith("degree"):
            if rest in ("", "angle"):
                return t.Degrees(unmarked(node))
            words = words.partition(" ")[2]
        reading = parse_unit(words)
        if reading is None:
            raise t.Unparsable(f"has words that are not a unit: {words[:40]!r}")
        if reading.multiplier != 1:
            # The nested product marks "5 million", unlike a product of two numbers.
            node = t.Mul((numeric(node), t.Mul((t.Num(reading.multiplier),))))
        if reading.unit is None:
            return node
        return t.Quantity(node, reading.unit, reading.scale)

    def _unit_text(self) -> str:
        words: list[str] = []
        opened = 0
        while True:
            token, after = self._next, self._peek()
            if self._is_any("([") and after.kind == "text":
                if CONDITION.match(after.value.lower()):
                    break
                opened += 1
                self._at += 1
            elif opened and self._is_any(")]"):
                opened -= 1
                self._at += 1
            elif token.kind == "text":
                value = token.value.strip(" .~()[]")
                lower = value.lower()
                if CONDITION.match(lower) and not lower.startswith("for each"):
                    break
                words.append(value)
                self._at += 1
            elif words and token.value == "^":
                self._at += 1
                exponent = t.fold(self._argument())
                if not isinstance(exponent, t.Num):
                    raise t.Unparsable("has a unit with a power that is not a number")
                words.append(f"^ {exponent.value}")
            elif (
                (words or token.value == "/")
                and token.value in ("/", "*")
                and (after.kind == "text" or words and after.kind == "sym")
            ):
                words.append(token.value)
                words += [after.value] if after.kind == "sym" else []
                self._at += 1 + (after.kind == "sym")
            elif words and token.kind == "sym" and token.spaced:
                words.append(token.value)
                self._at += 1
            else:
                break
        return " ".join(words)


def _with_half(node: t.Node, half: str | None) -> t.Clock | None:
    """Adds "am" or "pm" to a time; returns None if its hour contradicts: 15:05 am."""
    clock = node if isinstance(node, t.Clock) else None
    parts = node.parts if isinstance(node, t.Ratio) else (node, t.ZERO)
    if clock is None and len(parts) == 2 and all(map(t.is_integer, parts)):
        clock = t.time_of_day(int(parts[0].value), int(parts[1].value))
    if clock and half and (clock.half == half or not clock.of_day):
        return t.Clock(clock.minutes, half)
    return None if half else clock
