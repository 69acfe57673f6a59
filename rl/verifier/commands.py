"""Operands that are functions or LaTeX commands."""

from fractions import Fraction

from rl.verifier import tree
from rl.verifier.cursor import numeric
from rl.verifier.operands import OperandParser
from rl.verifier.tokens import Token
from rl.verifier.tree import Node, Unparsable

_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_MATRICES = frozenset(
    "pmatrix bmatrix matrix array vmatrix smallmatrix Bmatrix Vmatrix".split()
)


class CommandParser(OperandParser):
    """Reads functions with their arguments, and commands with theirs."""

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
        return node if exponent is None else tree.power(node, numeric(exponent))

    def _function_arguments(self) -> list[Node]:
        if self._is("(") or self._is("{"):
            closing = ")" if self._next.value == "(" else "}"
            self._at += 1
            outer, self._bar_closes = self._bar_closes, False
            arguments = self.items()
            self._bar_closes = outer
            self._expect(closing)
            return [numeric(argument) for argument in arguments]
        if self._is("set{"):
            return [numeric(argument) for argument in self._bracketed()[1:]]
        if self._next.kind == "fn":
            return [self._function()]
        if self._is("-"):
            self._at += 1
            return [tree.negative(numeric(self._postfix()))]
        node = numeric(self._postfix())
        while self._next.kind in ("num", "sym", "const") or (
            self._next.kind == "cmd" and self._next.value in ("frac", "sqrt")
        ):
            node = numeric(self._juxtaposed(node, self._next))
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
                numeric(self._digit_argument()), numeric(self._digit_argument())
            )
        elif name in ("binom", "dbinom", "tbinom"):
            node = ("fn", "binom", numeric(self._digit_argument()))
            node = (*node, numeric(self._digit_argument()))
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
            degree = numeric(self.expression())
            self._expect("]")
        node = self._argument()
        return tree.power(numeric(node), tree.divide(tree.ONE, degree))

    def _number_set(self) -> Node:
        letter = self._index()
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
                upper = numeric(self._argument())
        if name == "int":
            return self._integral(lower, upper)
        if lower is None or lower[0] != "rel" or len(lower) != 4:
            raise Unparsable(f"has a \\{name} without an index")
        _, relation, index, start = lower
        letter = index if index in (tree.IMAGINARY, tree.EULER) else None
        if letter is not None:
            # An index may take the name of a constant.
            index = ("sym", index[1])
        if index[0] != "sym" or relation != ("to" if name == "lim" else "="):
            raise Unparsable(f"has a \\{name} without an index")
        body = numeric(self._product())
        if letter is not None:
            body = tree.substitute(body, {letter: index})
        if name == "lim":
            return ("big", "lim", index, numeric(start), tree.ZERO, body)
        if upper is None:
            raise Unparsable(f"has a \\{name} without an upper bound")
        return ("big", name, index, numeric(start), upper, body)

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
        return ("big", "int", index, numeric(lower), upper, numeric(body))


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
        return tree.divide(logarithm, ("fn", "log", numeric(base)))
    if name in ("sqrt", "cbrt"):
        degree = 2 if name == "sqrt" else 3
        return tree.power(argument, tree.number(Fraction(1, degree)))
    return ("fn", "sgn" if name == "sign" else name, argument)
