"""A recursive-descent parser for single expressions.

Precedence, loosest first: set operations, sums, products (also implicit), signs,
powers and other postfixes, operands. Brackets may hold any statement; `statements`
supplies those by subclassing.
"""

import re
from fractions import Fraction

from rl.verifier import tree
from rl.verifier.tokens import Token
from rl.verifier.tree import Node, Unparsable

MAX_DEPTH = 40
_MAX_EXPONENT = 4_000
_RELATIONS = frozenset("= < > <= >= != approx in equiv to".split())
_STARTS = frozenset(["(", "[", "{", "set{", "|", "floor(", "ceil(", "…", "$"])
_CURRENCY = frozenset("$€£¥₹")
_FUNCTION_LETTERS = frozenset("fghFGH")
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_PERIODIC_TAIL = re.compile(r"(\d{1,12}?)\1+$")
_MATRICES = frozenset(
    "pmatrix bmatrix matrix array vmatrix smallmatrix Bmatrix Vmatrix".split()
)


class ExpressionParser:
    """Reads one expression from a list of tokens."""

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bar_closes = False
        self.currency: str | None = None

    # --- moving through the tokens

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

    # --- the grammar

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

    def items(self) -> list[Node]:
        """What brackets hold: statements separated by commas."""
        raise NotImplementedError

    def statement(self) -> Node:
        """An expression, a relation, or a quantity with its unit."""
        raise NotImplementedError

    def _sum(self) -> Node:
        terms = [self._product()]
        while self._next.kind == "op" and self._next.value in ("+", "-", "±", "∓"):
            if self._next.value in "+-" and self._peek().value in (",", ")", "", "}"):
                raise Unparsable("ends in a sign")
            sign = self._sign()
            terms.append(_apply_sign(sign, _numeric(self._product())))
        return terms[0] if len(terms) == 1 else tree.add(*map(_numeric, terms))

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
                node = tree.mul(_numeric(node), _numeric(self._signed()))
            elif token.kind == "op" and token.value == "/":
                if self._peek().kind == "text":
                    return node
                self._at += 1
                node = tree.divide(_numeric(node), _numeric(self._signed()))
            elif self._starts_operand(token) and node[0] not in ("tuple", "interval"):
                start = self._at
                if token.value != "(":
                    node = self._juxtaposed(node, token)
                elif (right := self._postfix())[0] in ("rel", "chain"):
                    # A condition in brackets, which is the caller's to judge.
                    self._at = start
                    return node
                else:
                    node = tree.mul(_numeric(node), _numeric(right))
            else:
                return node

    def _juxtaposed(self, left: Node, token: Token) -> Node:
        """Implicit multiplication, and whole numbers beside a proper fraction."""
        before = self._tokens[self._at - 1]
        if token.kind == "num" and before.kind in ("num", "sym"):
            if before.kind == "num" and self._peek().value == "/":
                right = self._mixed_part(self._postfix(), slash=True)
                return tree.add(left, right)
            raise Unparsable("has a number after an operand with no operator")
        is_integer = before.kind == "num" and before.value.isdigit()
        if is_integer and token.value == "frac" and left[0] == "num":
            right = self._postfix()
            if right[0] == "num" and 0 < right[1] < 1 and left[1].denominator == 1:
                return tree.add(left, right if left[1] >= 0 else tree.negative(right))
            return tree.mul(left, _numeric(right))
        return tree.mul(_numeric(left), _numeric(self._postfix()))

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
            return not token.value.startswith("end ")
        if token.kind == "op" and token.value == "|":
            return not self._bar_closes
        return token.kind == "op" and token.value in _STARTS and token.value != "$"

    def _signed(self) -> Node:
        if self._next.kind == "op" and self._next.value in ("+", "-", "±", "∓"):
            self._enter()
            sign = self._sign()
            node = self._signed()
            node = _apply_sign(sign, node if node[0] == "based" else _numeric(node))
            self._depth -= 1
            return node
        return self._postfix()

    def _postfix(self) -> Node:
        node = self._operand()
        while self._next.kind == "op":
            value = self._next.value
            if value == "^":
                node = self._raised(node)
            elif value == "!":
                self._at += 1
                double = self._accept("!")
                node = ("fn", "fact2" if double else "fact", _numeric(node))
            elif value == "%":
                self._at += 1
                node = ("percent", _numeric(node))
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
        return tree.power(_numeric(base), _numeric(self._argument()))

    def _degrees(self, node: Node) -> Node:
        """Degrees, with minutes and seconds where they follow."""
        if self._next.kind == "sym" and self._next.value in ("C", "F"):
            return node
        total = _numeric(node)
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

    def _argument(self) -> Node:
        """What a command or a caret takes: a group, one digit-run, one operand."""
        if self._is("{"):
            return self._group()
        if self._next.kind == "op" and self._next.value in ("+", "-"):
            return _apply_sign(self._sign(), _numeric(self._argument()))
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
            return ("fn", "binom", *map(_numeric, arguments))
        return ("call", name, *map(_numeric, arguments))

    def _function(self) -> Node:
        self._enter()
        name = self._next.value
        self._at += 1
        base = exponent = None
        while self._next.kind == "op" and self._next.value in ("^", "_"):
            if self._accept("_"):
                base = self._argument()
            else:
                self._at += 1
                exponent = self._argument()
        if exponent == tree.MINUS_ONE and name in _INVERSE:
            name, exponent = _INVERSE[name], None
        arguments = self._function_arguments()
        node = _apply(name, base, arguments)
        self._depth -= 1
        return node if exponent is None else tree.power(node, _numeric(exponent))

    def _function_arguments(self) -> list[Node]:
        if self._is("(") or self._is("{"):
            closing = ")" if self._next.value == "(" else "}"
            self._at += 1
            outer, self._bar_closes = self._bar_closes, False
            arguments = self.items()
            self._bar_closes = outer
            self._expect(closing)
            return [_numeric(argument) for argument in arguments]
        if self._next.kind == "fn":
            return [self._function()]
        if self._is("-"):
            self._at += 1
            return [tree.negative(_numeric(self._postfix()))]
        node = _numeric(self._postfix())
        while self._next.kind in ("num", "sym", "const") or (
            self._next.kind == "cmd" and self._next.value in ("frac", "sqrt")
        ):
            node = _numeric(self._juxtaposed(node, self._next))
        if self._is("/") and tree.contains(node, frozenset({"const"})):
            if self._peek().kind == "num":
                self._at += 1
                node = tree.divide(node, self._number())
        return [node]

    def _command(self) -> Node:
        self._enter()
        name = self._next.value
        self._at += 1
        if name == "frac":
            node = _fraction(
                _numeric(self._digit_argument()), _numeric(self._digit_argument())
            )
        elif name in ("binom", "dbinom", "tbinom"):
            node = ("fn", "binom", _numeric(self._digit_argument()))
            node = (*node, _numeric(self._digit_argument()))
        elif name == "sqrt":
            node = self._root()
        elif name in ("overline", "bar", "vec", "hat", "tilde", "overrightarrow"):
            node = self._named(f"{name} {_name_of(self._argument())}")
        elif name in ("widehat", "dot", "ddot", "underline"):
            node = self._named(f"{name} {_name_of(self._argument())}")
        elif name == "mathbb":
            node = self._number_set()
        elif name.startswith("begin "):
            node = self._environment(name[6:])
        elif name in ("sum", "prod", "int", "lim"):
            node = self._big(name)
        else:
            raise Unparsable(f"has \\{name[:20]} out of place")
        self._depth -= 1
        return node

    def _root(self) -> Node:
        degree = tree.number(2)
        if self._accept("["):
            degree = _numeric(self.expression())
            self._expect("]")
        node = self._argument()
        return tree.power(_numeric(node), tree.divide(tree.ONE, degree))

    def _number_set(self) -> Node:
        letter = self._index() if self._is("{") else self._next.value
        if letter == self._next.value and not self._is("{"):
            self._at += 1
        if self._is("^"):
            self._at += 1
            letter += self._index()
        if letter == "R":
            infinity = tree.INFINITY
            return ("interval", tree.negative(infinity), infinity, False, False)
        return ("numbers", letter)

    def _environment(self, name: str) -> Node:
        outer, self._bar_closes = self._bar_closes, False
        rows, row = [], []
        while True:
            if self._next.kind == "cmd" and self._next.value == f"end {name}":
                self._at += 1
                break
            if self._next.kind == "end":
                raise Unparsable(f"has an unclosed {name[:20]}")
            if self._accept("row"):
                rows.append(row)
                row = []
            elif not self._accept("&") and not self._accept(","):
                row.append(self.statement())
        rows = [row for row in [*rows, row] if row]
        self._bar_closes = outer
        if name in _MATRICES and rows:
            width = len(rows[0])
            if any(len(row) != width for row in rows):
                raise Unparsable("has matrix rows of different lengths")
            kind = "det" if name == "vmatrix" else "matrix"
            return (kind, width, *(cell for row in rows for cell in row))
        if all(len(row) == 1 for row in rows):
            return ("set", *(row[0] for row in rows))
        return ("cases", *(("row", *row) for row in rows))

    def _big(self, name: str) -> Node:
        lower = upper = index = None
        while self._next.kind == "op" and self._next.value in ("_", "^"):
            if self._accept("_"):
                lower = self._argument()
            else:
                self._at += 1
                upper = _numeric(self._argument())
        if name == "int":
            return self._integral(lower, upper)
        if lower is None or lower[0] != "rel" or len(lower) != 4:
            raise Unparsable(f"has a \\{name} without an index")
        _, relation, index, start = lower
        if index[0] != "sym" or relation != ("to" if name == "lim" else "="):
            raise Unparsable(f"has a \\{name} without an index")
        body = _numeric(self._product())
        if name == "lim":
            return ("big", "lim", index, _numeric(start), tree.ZERO, body)
        if upper is None:
            raise Unparsable(f"has a \\{name} without an upper bound")
        return ("big", name, index, _numeric(start), upper, body)

    def _integral(self, lower: Node | None, upper: Node | None) -> Node:
        if lower is None or upper is None:
            raise Unparsable("has an integral without bounds")
        for end in range(self._at, len(self._tokens) - 1):
            mark, variable = self._tokens[end : end + 2]
            if mark.value == "d" and mark.kind == variable.kind == "sym":
                break
        else:
            raise Unparsable("has an integral without a variable")
        inner = type(self)([*self._tokens[self._at : end], Token("end", "", False)])
        inner._depth = self._depth
        body = inner.expression() if end > self._at else tree.ONE
        if inner._next.kind != "end":
            raise Unparsable("has an integral that does not end")
        self._at = end + 2
        index = ("sym", variable.value)
        return ("big", "int", index, _numeric(lower), upper, _numeric(body))

    def _bracketed(self) -> Node:
        opening = self._next.value
        if opening in _CURRENCY:
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


def _apply_sign(sign: Node, node: Node) -> Node:
    if node[0] == "based" and sign == tree.MINUS_ONE:
        return ("based", "-" + node[1], node[2])
    return node if sign == tree.ONE else tree.mul(sign, node)


def _numeric(node: Node) -> Node:
    if tree.is_expression(node):
        return node
    raise Unparsable(f"calculates with a {node[0]}")


def _repeated(text: str, block: str) -> Node:
    whole, _, places = text.partition(".")
    scale = 10 ** len(places)
    period = 10 ** len(block) - 1
    value = Fraction(int((whole or "0") + places), scale)
    return tree.number(value + Fraction(int(block), period * scale))


def _name_of(node: Node) -> str:
    if node[0] == "sym":
        return node[1]
    if node[0] == "mul" and all(part[0] in ("sym", "const") for part in node[1:]):
        return "".join(part[1] for part in node[1:])
    if node[0] == "num":
        return str(node[1])
    raise Unparsable("has a mark over what is no name")


def _fraction(top: Node, bottom: Node) -> Node:
    """A quotient; dy/dx is a derivative and not y/x."""
    for mark in (("sym", "d"), ("sym", "partial")):
        if bottom[0] == "mul" and bottom[1] == mark and len(bottom) == 3:
            if top == mark or top[0] == "mul" and mark in top:
                rest = [p for p in top[1:] if p != mark] if top[0] == "mul" else []
                return ("call", "derivative", tree.mul(*rest), bottom[2])
    return tree.divide(top, bottom)


def _apply(name: str, base: Node | None, arguments: list[Node]) -> Node:
    if name in ("max", "min", "gcd", "lcm"):
        return ("fn", name, *arguments)
    if len(arguments) != 1:
        raise Unparsable(f"gives {name} {len(arguments)} arguments")
    argument = arguments[0]
    if name == "exp":
        return tree.power(tree.EULER, argument)
    if name in ("log", "ln", "lg"):
        logarithm = ("fn", "log", argument)
        if name == "lg":
            base = tree.number(10)
        if base is None or base == tree.EULER:
            return logarithm
        return tree.divide(logarithm, ("fn", "log", _numeric(base)))
    if name in ("sqrt", "cbrt"):
        degree = 2 if name == "sqrt" else 3
        return tree.power(argument, tree.number(Fraction(1, degree)))
    return ("fn", "sgn" if name == "sign" else name, argument)


def _bracket_node(opening: str, closing: str, items: list[Node]) -> Node:
    if opening == "|":
        return ("fn", "abs", _numeric(_only(items)))
    if opening in ("floor(", "ceil("):
        return ("fn", opening[:-1], _numeric(_only(items)))
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
