"""Operands: numbers, names, calls and brackets."""

import re
from fractions import Fraction

from rl.verifier import tree
from rl.verifier.cursor import Cursor, apply_sign, numeric
from rl.verifier.tokens import Token
from rl.verifier.tree import Node, Unparsable

_MAX_EXPONENT = 4_000
CURRENCY = frozenset("$€£¥₹")
_FUNCTION_LETTERS = frozenset("fghFGH")
_PERIODIC_TAIL = re.compile(r"(\d{1,12}?)\1+$")


class OperandParser(Cursor):
    """Reads one operand."""

    def _argument(self) -> Node:
        """What a command or a caret takes: a group, one digit-run, one operand."""
        if self._is("{"):
            return self._group()
        if self._next.kind == "op" and self._next.value in ("+", "-"):
            return apply_sign(self._sign(), numeric(self._argument()))
        self._enter()
        node = self._operand()
        self._depth -= 1
        return node

    def _digit_argument(self) -> Node:
        """As LaTeX reads `\\frac12`: an unbraced number gives up one digit."""
        token = self._next
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            self._tokens[self._at] = Token("num", token.value[1:], False)
            return tree.number(int(token.value[0]))
        return self._argument()

    def _group(self) -> Node:
        """Braces: grouping, or a set where commas stand inside."""
        self._expect("{")
        outer, self._bar_closes = self._bar_closes, True
        items = self.items()
        is_set = self._accept("|")
        if is_set:
            items = self._conditions()
        self._bar_closes = outer
        self._expect("}")
        return items[0] if len(items) == 1 else ("set", *items)

    def _operand(self) -> Node:
        token = self._next
        match token.kind:
            case "num":
                return self._number()
            case "sym":
                return self._symbol()
            case "const":
                self._at += 1
                return ("const", token.value)
            case "text":
                self._at += 1
                return ("sym", token.value.casefold())
            case "fn":
                return self._function()
            case "cmd":
                return self._command()
            case "op":
                return self._bracketed()
        raise Unparsable("ends where an operand is due")

    def _number(self) -> Node:
        text = self._next.value
        self._at += 1
        if self._next.kind == "cmd" and self._next.value in ("overline", "bar", "dot"):
            if "." in text and not self._next.spaced:
                return self._repeating(text)
        if self._is(".") and self._peek().value in ("overline", "bar", "dot"):
            self._at += 1
            return self._repeating(text + ".")
        if self._is("…") and "." in text and not self._next.spaced:
            self._at += 1
            if match := _PERIODIC_TAIL.search(text.split(".")[1]):
                return _repeated(text[: len(text) - len(match[0])], match[1])
            raise Unparsable("is a decimal cut off by dots")
        mantissa, _, exponent = text.lower().partition("e")
        if exponent and abs(int(exponent)) > _MAX_EXPONENT:
            raise Unparsable(f"has an exponent beyond {_MAX_EXPONENT}")
        places = len(mantissa.partition(".")[2])
        ulp = Fraction(1, 10**places) * Fraction(10) ** int(exponent or 0)
        return tree.number(Fraction(text), ulp if places else None)

    def _repeating(self, text: str) -> Node:
        block = ""
        while self._next.kind == "cmd" and self._next.value in (
            ("overline", "bar", "dot")
        ):
            self._at += 1
            braced = self._accept("{")
            if self._next.kind != "num" or not self._next.value.isdigit():
                raise Unparsable("has a bar over what is no digit")
            block += self._next.value
            self._at += 1
            if braced:
                self._expect("}")
        return _repeated(text, block)

    def _symbol(self) -> Node:
        name = self._next.value
        self._at += 1
        if name in ("C", "A") and self._next.value in ("_", "^"):
            if (count := self._choices(name)) is not None:
                return count
        return self._named(name)

    def _choices(self, name: str) -> Node | None:
        """C_n^k and A_n^k, the numbers of choices and of arrangements."""
        start, parts = self._at, {}
        for _ in range(2):
            mark = self._next.value
            if self._next.kind != "op" or mark not in ("_", "^") or mark in parts:
                break
            if self._peek().kind == "text" or self._peek(2).kind == "text":
                break
            self._at += 1
            parts[mark] = self._argument()
        if len(parts) < 2 or not all(map(tree.is_expression, parts.values())):
            self._at = start
            return None
        top, bottom = parts["_"], parts["^"]
        if name == "C":
            return ("fn", "binom", top, bottom)
        rest = tree.add(top, tree.negative(bottom))
        return tree.divide(("fn", "fact", top), ("fn", "fact", rest))

    def _named(self, name: str) -> Node:
        """A name with its index and primes, or a call of it."""
        while True:
            if self._is("_"):
                self._at += 1
                name += "_" + self._index()
            elif self._is("'"):
                self._at += 1
                name += "'"
            elif self._is("^") and self._prime_ahead():
                name += "'"
            elif (
                self._next.kind == "num"
                and not self._next.spaced
                and (self._next.value.isdigit() and "_" not in name)
            ):
                name += "_" + self._next.value
                self._at += 1
            else:
                break
        if self._is("(") and self._is_call(name):
            return self._call(name)
        return ("sym", name)

    def _prime_ahead(self) -> bool:
        """Consumes `^{\\prime}` and `^*`, which belong to the name."""
        inner = self._peek()
        if inner.value in ("'", "*") and inner.kind == "op":
            self._at += 2
            return True
        if inner.value == "{" and self._peek(2).value in ("'", "*"):
            if self._peek(3).value == "}":
                self._at += 4
                return True
        return False

    def _index(self) -> str:
        """The text of a subscript, without its braces."""
        if self._next.kind == "end":
            raise Unparsable("ends where an index is due")
        if not self._is("{"):
            value = self._next.value
            self._at += 1
            return value
        parts, depth = [], 0
        while True:
            token = self._next
            if token.kind == "end":
                raise Unparsable("has an unclosed subscript")
            self._at += 1
            depth += (token.value == "{") - (token.value == "}")
            if depth == 0:
                return "".join(parts).strip()
            if token.value not in ("{", "}"):
                parts.append(token.value.strip())

    def _is_call(self, name: str) -> bool:
        """f(...) always; x(t) and I(0), where multiplying would make no sense."""
        if name[0] in _FUNCTION_LETTERS:
            return True
        if self._peek().kind in ("num", "sym") and self._peek(2).value in (")", ","):
            return True
        return False

    def _call(self, name: str) -> Node:
        self._expect("(")
        outer, self._bar_closes = self._bar_closes, False
        arguments = self.items()
        self._bar_closes = outer
        self._expect(")")
        if name == "C" and len(arguments) == 2:
            return ("fn", "binom", *map(numeric, arguments))
        return ("call", name, *map(numeric, arguments))

    def _bracketed(self) -> Node:
        opening = self._next.value
        if opening in CURRENCY:
            self._at += 1
            self.currency = opening
            return self._postfix()
        if opening == "…":
            self._at += 1
            return ("sym", "…")
        if opening == "emptyset":
            self._at += 1
            return ("set",)
        if opening == "{":
            return self._group()
        closings = {
            "(": ")]", "[": ")]", "]": "[]", "|": "|", "set{": "set}",
            "floor(": "floor)", "ceil(": "ceil)",
        }  # fmt: skip
        if opening not in closings:
            raise Unparsable(f"has {opening[:20]!r} where an operand is due")
        self._enter()
        self._at += 1
        outer, self._bar_closes = self._bar_closes, opening in ("|", "set{")
        items = [] if self._is("set}") else self.items()
        if opening == "set{" and (self._accept("|") or self._accept(":")):
            items = self._conditions()
        closing = self._next.value
        if self._next.kind != "op" or (
            closing not in closings[opening]
            if opening in "([]"
            else closing != closings[opening]
        ):
            raise Unparsable(f"has no bracket that closes {opening!r}")
        self._at += 1
        self._bar_closes = outer
        self._depth -= 1
        return _bracket_node(opening, closing, items)

    def _conditions(self) -> list[Node]:
        """The right side of `{x | ...}`: the set is the one it describes."""
        self._bar_closes = False
        return self.items()


def _repeated(text: str, block: str) -> Node:
    whole, _, places = text.partition(".")
    scale = 10 ** len(places)
    period = 10 ** len(block) - 1
    value = Fraction(int((whole or "0") + places), scale)
    return tree.number(value + Fraction(int(block), period * scale))


def _bracket_node(opening: str, closing: str, items: list[Node]) -> Node:
    if opening == "|":
        return ("fn", "abs", numeric(_only(items)))
    if opening in ("floor(", "ceil("):
        return ("fn", opening[:-1], numeric(_only(items)))
    if opening == "set{":
        return ("set", *items)
    if not items:
        raise Unparsable("has empty brackets")
    round_brackets = opening == "(" and closing == ")"
    if len(items) == 1:
        if (opening == "(") == (closing == ")"):
            return items[0]
    elif len(items) == 2 and not round_brackets:
        return ("interval", *items, opening == "[", closing == "]")
    elif round_brackets or opening == "[" and closing == "]":
        return ("tuple", *items)
    raise Unparsable("has brackets that do not match")


def _only(items: list[Node]) -> Node:
    if len(items) != 1:
        raise Unparsable("has several items where one is due")
    return items[0]
