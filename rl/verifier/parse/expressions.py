"""Parses expressions: sums, products, signs, powers, and marks such as %."""

from . import tree as t
from .build import based, is_proper, multiplied, numeric, quotient, signed, unmarked
from .operands import Operands
from .tokens import Token

_MAX_POSTFIXES = 12
_INFIX = {"over": quotient, "choose": lambda top, below: t.Fn("binom", (top, below))}
_JOINING = frozenset(["cup", "cap", "minus", *_INFIX])
_POSTFIXES = frozenset("^!%°_")
_SIGNS = {"±": t.Sign(), "-": t.MINUS_ONE, "+": t.ONE}
STARTS = frozenset(["(", "[", "{", "set{", "|", "floor(", "ceil(", "…"])
ORDINALS = frozenset("th st nd rd".split())


class Expressions(Operands):
    def _expression(self) -> t.Node:
        self._enter()
        left = self._sum()
        while self._is_any(_JOINING):
            sign = self._next.value
            self._at += 1
            if sign in _INFIX:
                left = _INFIX[sign](numeric(left), numeric(self._sum()))
                break
            left = t.SetOp(sign, left, self._sum())
        self._depth -= 1
        return left

    def _sum(self) -> t.Node:
        terms = [self._product()]
        while self._is_any("+-±"):
            sign = self._sign()
            terms.append(signed(sign, self._product()))
        if len(terms) == 1:
            return terms[0]
        return t.Add(tuple(map(numeric, terms)))

    def _sign(self) -> t.Node:
        self._at += 1
        return _SIGNS[self._tokens[self._at - 1].value]

    def _product(self) -> t.Node:
        factors = [self._unary()]
        while True:
            token = self._tokens[self._at]
            if token.kind == "op" and token.value == "*":
                self._at += 1
                factors.append(self._unary())
            elif token.kind == "op" and token.value == "/":
                if self._peek().kind == "text":
                    break
                self._at += 1
                top = numeric(multiplied(factors))
                factors = [quotient(top, numeric(self._unary()))]
            elif self._starts_operand(token) and not isinstance(
                factors[-1], t.Tuple | t.Interval
            ):
                start = self._at
                if token.value != "(":
                    factors[-1] = self._juxtaposed(factors[-1], token)
                elif self._peek().kind == "text" or self._peek().value == "approx":
                    break
                elif isinstance(right := self._postfix(), t.Rel | t.Chain):
                    # A condition in brackets, which the caller reads.
                    self._at = start
                    break
                else:
                    factors.append(right)
            else:
                break
        return multiplied(factors)

    def _juxtaposed(self, left: t.Node, token: Token) -> t.Node:
        # Braces are not printed: 2{3} looks like 23.
        at = self._at - 1
        while at in self._group_ends:
            at -= 1
        before, at = self._tokens[at], self._at
        while self._tokens[at].value == "{" and self._tokens[at].kind == "op":
            at += 1
        ahead = self._tokens[at]
        mixed = False
        if ahead.kind == "num" and before.kind in ("num", "sym"):
            bare = ahead is token and before is self._tokens[self._at - 1]
            mixed = bare and before.kind == "num" and self._peek().value == "/"
            if before.kind == "num" and not mixed:
                raise t.Unparsable("has no operator between an operand and a number")
            if ahead is token and before.kind == "sym" and self._peek().value != "^":
                raise t.Unparsable("has no operator between an operand and a number")
        elif ahead.value == "frac":
            mixed = before.kind == "num" and before.value.isdigit()
        right = self._operand()
        if mixed and token.kind == "num":
            self._expect("/")
            right = quotient(right, self._operand())
        if mixed and is_proper(right):
            if isinstance(left, t.Num):
                return self._marked(t.Add((left, right)))
            if isinstance(left, t.Mul) and isinstance(left.factors[-1], t.Num):
                if left.factors[:-1] == (t.MINUS_ONE,):
                    whole = self._marked(t.Add((left.factors[-1], right)))
                    return t.Mul((t.MINUS_ONE, numeric(whole)))
        if mixed and token.kind == "num":
            raise t.Unparsable("has two numbers in a row")
        right = self._marked(right)
        if isinstance(right, t.Matrix):
            return multiplied((left, right))
        left = numeric(left)
        above = left.factors if isinstance(left, t.Mul) else (left,)
        return t.Mul((*above, numeric(right)))

    def _starts_operand(self, token: Token) -> bool:
        if token.kind != "op":
            return token.kind not in ("end", "text") and token.value[:4] != "end "
        if token.value in ("|", "["):
            return not (self._bar_closes if token.value == "|" else self._reversed)
        return token.value in STARTS

    def _unary(self) -> t.Node:
        if self._is_any("+-±"):
            self._enter()
            sign = self._sign()
            node = signed(sign, self._unary())
            self._depth -= 1
            return node
        return self._postfix()

    def _postfix(self) -> t.Node:
        return self._marked(self._operand())

    def _marked(self, node: t.Node) -> t.Node:
        for _ in range(_MAX_POSTFIXES):
            kind, value, _ = self._tokens[self._at]
            if value not in _POSTFIXES or kind != "op":
                break
            if value == "^":
                node = self._raised(node)
            elif value == "!":
                self._at += 1
                node = t.Fn("fact", (numeric(node),))
                if self._is("!"):
                    raise t.Unparsable("has a double factorial")
            elif value == "%":
                self._at += 1
                node = t.Percent(unmarked(node))
            elif value == "°":
                self._at += 1
                if isinstance(node, t.Sym) and self._next.kind == "sym":
                    raise t.Unparsable("has a composition of functions")
                node = t.Degrees(unmarked(node))
            elif value == "_" and isinstance(node, t.Num):
                bracketed = self._tokens[self._at - 1].value == ")"
                digits = self._tokens[self._at - 1 - bracketed].value
                self._at += 1
                node = based(digits, self._index())
            elif value == "_" and isinstance(node, t.Expression):
                self._at += 1
                node = t.Call("_" + self._index(), (node,))
            else:
                break
        return node

    def _raised(self, base: t.Node) -> t.Node:
        r"""Parses an exponent, or a mark written like one: 90^\circ, 5^{th}."""
        self._at += 1
        braced = self._is("{")
        inner = self._peek() if braced else self._next
        degrees = inner.kind == "op" and inner.value == "°"
        if not degrees and inner.kind != "text":
            exponent = self._argument()
            return t.Pow(numeric(base), numeric(exponent))
        if not degrees and inner.value.strip().lower() not in ORDINALS:
            raise t.Unparsable("has words as an exponent")
        self._at += 1 + braced
        if braced:
            self._expect("}")
        return t.Degrees(unmarked(base)) if degrees else base
