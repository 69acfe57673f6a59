"""Expressions: operands with their marks, joined by operators.

Precedence, loosest first: set operations, sums, products (also implicit), signs,
powers and other postfixes.
"""

from rl.verifier import tree
from rl.verifier.commands import CommandParser
from rl.verifier.cursor import apply_sign, numeric
from rl.verifier.tokens import Token
from rl.verifier.tree import Node, Unparsable

_MAX_POSTFIXES = 12
_STARTS = frozenset(["(", "[", "{", "set{", "|", "floor(", "ceil(", "…", "$"])
_DOTS = ("sym", "…")


class ExpressionParser(CommandParser):
    """Reads one expression."""

    def expression(self) -> Node:
        """An expression, or sets joined by set operations."""
        self._enter()
        left = self._sum()
        while self._next.kind == "op" and self._next.value in ("cup", "cap", "minus"):
            kind = self._next.value
            self._at += 1
            left = (kind, left, self._sum())
        self._depth -= 1
        return left

    def _sum(self) -> Node:
        terms = [self._product()]
        while self._next.kind == "op" and self._next.value in ("+", "-", "±", "∓"):
            if self._next.value in "+-" and self._peek().value in (",", ")", "", "}"):
                raise Unparsable("ends in a sign")
            sign = self._sign()
            terms.append(apply_sign(sign, numeric(self._product())))
        if len(terms) == 1:
            return terms[0]
        if _DOTS in terms:
            # What the dots leave out depends on every term that is written.
            return ("call", "…", *map(numeric, terms))
        return tree.add(*map(numeric, terms))

    def _sign(self) -> Node:
        value = self._next.value
        self._at += 1
        if value == "±":
            return ("pm", 1)
        if value == "∓":
            return ("pm", -1)
        return tree.MINUS_ONE if value == "-" else tree.ONE

    def _product(self) -> Node:
        node = self._signed()
        while True:
            token = self._next
            if token.kind == "op" and token.value == "*":
                self._at += 1
                node = tree.mul(numeric(node), numeric(self._signed()))
            elif token.kind == "op" and token.value == "/":
                if self._peek().kind == "text":
                    return node
                self._at += 1
                node = tree.divide(numeric(node), numeric(self._signed()))
            elif self._starts_operand(token) and node[0] not in ("tuple", "interval"):
                start = self._at
                if token.value != "(":
                    node = self._juxtaposed(node, token)
                elif self._peek().value == "mod":
                    return node
                elif (right := self._postfix())[0] in ("rel", "chain"):
                    # A condition in brackets, which is the caller's to judge.
                    self._at = start
                    return node
                else:
                    node = tree.mul(numeric(node), numeric(right))
            else:
                return node

    def _juxtaposed(self, left: Node, token: Token) -> Node:
        """Implicit multiplication, and whole numbers beside a proper fraction."""
        before = self._tokens[self._at - 1]
        if token.kind == "num" and before.kind in ("num", "sym"):
            if before.kind == "num" and self._peek().value == "/":
                right = self._mixed_part(self._postfix(), slash=True)
                return tree.add(left, right)
            if before.kind == "num" or self._peek().value != "^":
                raise Unparsable("has a number after an operand with no operator")
        is_integer = before.kind == "num" and before.value.isdigit()
        if is_integer and token.value == "frac" and left[0] == "num":
            right = self._postfix()
            if right[0] == "num" and 0 < right[1] < 1 and left[1].denominator == 1:
                return tree.add(left, right if left[1] >= 0 else tree.negative(right))
            return tree.mul(left, numeric(right))
        return tree.mul(numeric(left), numeric(self._postfix()))

    def _mixed_part(self, top: Node, slash: bool) -> Node:
        self._expect("/")
        bottom = self._postfix()
        if top[0] != "num" or bottom[0] != "num" or not 0 < top[1] < bottom[1]:
            raise Unparsable("has two numbers in a row")
        return tree.divide(top, bottom)

    def _starts_operand(self, token: Token) -> bool:
        if token.kind in ("num", "sym", "const", "fn"):
            return True
        if token.kind == "cmd":
            return not token.value.startswith("end ") and token.value != "pmod"
        if token.kind == "op" and token.value == "|":
            return not self._bar_closes
        return token.kind == "op" and token.value in _STARTS and token.value != "$"

    def _signed(self) -> Node:
        if self._next.kind == "op" and self._next.value in ("+", "-", "±", "∓"):
            self._enter()
            sign = self._sign()
            node = self._signed()
            node = apply_sign(sign, node if node[0] == "based" else numeric(node))
            self._depth -= 1
            return node
        return self._postfix()

    def _postfix(self) -> Node:
        node = self._operand()
        for _ in range(_MAX_POSTFIXES):
            if self._next.kind != "op":
                break
            value = self._next.value
            if value == "^":
                node = self._raised(node)
            elif value == "!":
                self._at += 1
                double = self._accept("!")
                node = ("fn", "fact2" if double else "fact", numeric(node))
            elif value == "%":
                self._at += 1
                node = ("percent", numeric(node))
            elif value == "°":
                self._at += 1
                node = self._degrees(node)
            elif value == "_" and node[0] == "num":
                node = self._based(node)
            elif value == "_" and tree.is_expression(node):
                self._at += 1
                node = ("call", "_" + self._index(), node)
            else:
                break
        return node

    def _raised(self, base: Node) -> Node:
        """After an operand: a power, or what is only written like one."""
        self._at += 1
        braced = self._is("{")
        inner = self._peek() if braced else self._next
        if inner.kind == "op" and inner.value in ("°", "'"):
            self._at += 1 + braced
            while braced and self._accept("'"):
                pass
            if braced:
                self._expect("}")
            if inner.value == "'":
                return ("call", "'", base)
            return self._degrees(base)
        if inner.kind == "text":
            if inner.value.strip().lower() not in ("th", "st", "nd", "rd"):
                raise Unparsable("has words as an exponent")
            self._at += 1 + braced
            if braced:
                self._expect("}")
            return base
        exponent = self._argument()
        if self._is("^"):
            self._enter()
            exponent = self._raised(exponent)
            self._depth -= 1
        return tree.power(numeric(base), numeric(exponent))

    def _degrees(self, node: Node) -> Node:
        """Degrees, with minutes and seconds where they follow."""
        if self._next.kind == "sym" and self._next.value in ("C", "F"):
            return node
        total = numeric(node)
        for mark, share in (("'", 60), ('"', 3600)):
            if self._next.kind == "num" and self._peek().value == mark:
                part = self._number()
                self._at += 1
                if mark == '"' or not self._accept("'"):
                    total = tree.add(total, tree.divide(part, tree.number(share)))
        self._accept('"')
        return ("deg", total)

    def _based(self, node: Node) -> Node:
        bracketed = self._tokens[self._at - 1].value == ")"
        digits = self._tokens[self._at - 1 - bracketed].value
        self._at += 1
        base = self._argument()
        if base[0] != "num" or not digits.isdigit() or base[1].denominator != 1:
            raise Unparsable("has a number with an index that is no base")
        if not 2 <= base[1] <= 36 or max(map(int, digits)) >= base[1]:
            raise Unparsable(f"is no number in base {str(base[1])[:10]}")
        return ("based", digits.lstrip("0") or "0", int(base[1]))
