"""Parses operands: numbers, names, brackets, functions, commands, environments."""

import itertools
import re

from . import build
from . import tree as t
from .build import numeric, quotient, signed
from .cursor import Cursor
from .tokens import SHOWN, Token, is_relation
from .unit_table import CURRENCY
from .units import calculates

_FUNCTION_LETTERS = frozenset("fghFGH")
# What may follow the digits of a repeating decimal.
_REPEATS = frozenset([".", "(", "overline", "bar", "…"])
_PERIODIC_TAIL = re.compile(r"(\d{1,12}?)\1+$")
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_BRACKETED = frozenset("pmatrix bmatrix smallmatrix Bmatrix".split())
_MATRICES = _BRACKETED | {"matrix", "array"}
_ALIGNED = frozenset(
    "aligned align split gathered gather alignedat eqnarray equation".split()
)
_CLOSINGS = {
    "(": ")]", "[": ")][", "]": "[]", "|": "|", "set{": "set}", "floor(": "floor)",
    "ceil(": "ceil)",
}  # fmt: skip
_ATOMS = frozenset(["num", "sym", "const"])
# A single token of these kinds before one of these signs is a whole quantity.
_ENDS = frozenset(["", ",", ";", ")", "]", "}", "="])
_TWO = t.number(2)
_AFTER_NAMES = frozenset(["_", "'", "^", "("])
OPENING = frozenset(["(", "[", "{", "set{"])
CLOSING = frozenset([")", "]", "}", "set}"])


class Operands(Cursor):
    # --- operands

    def _at_lone_atom(self) -> bool:
        at, tokens = self._at, self._tokens
        return tokens[at].kind in _ATOMS and tokens[at + 1].value in _ENDS

    def _argument(self) -> t.Node:
        if self._is("{"):
            return self._group()
        if self._is_any("+-"):
            return signed(self._sign(), self._argument())
        self._enter()
        node = self._operand()
        self._depth -= 1
        return node

    def _digit_argument(self) -> t.Node:
        r"""Parses an argument; without braces, one digit or letter as in `\frac12`."""
        token = self._next
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            self._tokens[self._at] = Token("num", token.value[1:], False)
            return t.number(int(token.value[0]))
        if token.kind == "sym":
            self._at += 1
            return t.Sym(token.value)
        return self._argument()

    def _group(self) -> t.Node:
        """Parses braces: a group, or a set if it has several items or a condition."""
        self._at += 1
        if self._at_lone_atom() and self._peek().value == "}":
            node = self._operand()
            self._at += 1
            return node
        outer, self._bar_closes = self._bar_closes, True
        items = self._items()
        if self._accept("|"):
            items = [self._set_builder(items)]
        self._bar_closes = outer
        self._expect("}")
        return items[0] if len(items) == 1 else t.Braces(tuple(items))

    def _operand(self) -> t.Node:
        token = self._tokens[self._at]
        match token.kind:
            case "num":
                return self._number()
            case "sym":
                return self._symbol()
            case "const":
                self._at += 1
                return t.Const(token.value)
            case "text":
                if calculates(token.value):
                    raise t.Unparsable("has words for an operation in a formula")
                self._at += 1
                return t.Sym(token.value.casefold())
            case "fn":
                return self._function()
            case "cmd":
                return self._command()
            case "op":
                return self._bracketed()
        raise t.Unparsable("ends where an operand is expected")

    def _number(self) -> t.Node:
        text = self._tokens[self._at].value
        self._at += 1
        if self._tokens[self._at].value not in _REPEATS:
            return build.numeral(text)
        dot = self._is(".")
        mark, digits, end = (self._peek(dot + ahead) for ahead in range(3))
        in_brackets = mark.value == "(" and digits.value.isdigit() and end.value == ")"
        if in_brackets or mark.value in ("overline", "bar"):
            if (dot or "." in text) and not self._next.spaced:
                return self._repeating(text + "." * dot)
        if self._is("…") and "." in text and not self._next.spaced:
            places = text.split(".")[1]
            match = _PERIODIC_TAIL.search(places)
            if match and (len(match[0]) > 2 or match[0] == places):
                self._at += 1
                start = text[: len(text) - len(match[0])]
                return t.Repeating(build.periodic(start, match[1]), build.decimal(text))
            raise t.Unparsable("has a decimal cut off by dots")  # 0.577...
        return build.numeral(text)

    def _repeating(self, text: str) -> t.Node:
        self._accept(".")
        closing = ")" if self._is("(") else "}"
        self._at += 1
        braced = closing == ")" or self._accept("{")
        block = self._next.value
        if self._next.kind != "num" or not block.isdigit():
            raise t.Unparsable("has a bar over something other than digits")
        self._at += 1
        if braced:
            self._expect(closing)
        if self._next.kind == "num" or self._is("("):
            raise t.Unparsable("has digits or ( after a repeating decimal")
        return t.Repeating(build.periodic(text, block))

    def _symbol(self) -> t.Node:
        name = self._next.value
        self._at += 1
        if name == "m" and self._next.value == "angle" and self._next.kind == "sym":
            return self._symbol()  # "m" before an angle means its measure
        if name in ("angle", "triangle"):
            three = [self._peek(i) for i in range(3)]
            corners = "".join(token.value for token in three if token.kind == "sym")
            marked = self._peek(3).value in ("_", "'", "^")
            if len(corners) == 3 and corners.isupper() and not marked:
                self._at += 3
                if name == "angle":
                    corners = min(corners, corners[::-1])
                return t.Sym(f"{name} {corners}")
        return self._named(name)

    def _named(self, name: str) -> t.Node:
        if self._tokens[self._at].value not in _AFTER_NAMES:
            return t.Sym(name)
        while self._next.kind == "op":
            if self._is("_"):
                self._at += 1
                name += "_" + self._index()
            elif self._is("'"):
                self._at += 1
                name += "'"
            elif name in _FUNCTION_LETTERS and self._peek(0).value == "^":
                if [self._peek(i).value for i in range(1, 6)] != ["{", *"-1}("]:
                    break
                self._at += 5
                name += "^{-1}"
            else:
                break
        if not (self._is("(") and self._is_call(name)):
            return t.Sym(name)
        arguments = tuple(map(numeric, self._enclosed("(", ")")))
        if name == "C" and len(arguments) == 2:
            return t.Fn("binom", arguments)
        return t.Call(name, arguments)

    def _index(self) -> str:
        if self._next.kind == "end":
            raise t.Unparsable("ends where an index or argument is expected")
        if not self._is("{"):
            value = self._next.value
            self._at += 1
            return value
        parts, level = list[str](), 0
        while True:
            token = self._next
            if token.kind == "end":
                raise t.Unparsable("has an unclosed index or argument")
            self._at += 1
            level += (token.value == "{") - (token.value == "}")
            if level == 0:
                return "".join(parts).strip()
            if token.value not in ("{", "}"):
                parts.append(token.value.strip())

    def _is_call(self, name: str) -> bool:
        """Returns whether a name before brackets is a function: f(...), x(t), I(0).

        f, g, h, F, G and H are functions unless they recur in the brackets: h(2x + h).
        Other names are functions if the first argument is one number or letter.
        """
        if name[0] not in _FUNCTION_LETTERS:
            argument, behind = self._peek(), self._peek(2)
            return argument.kind in ("num", "sym") and behind.value in (")", ",")
        level = 0
        for token, after in itertools.pairwise(self._tokens[self._at :]):
            if token.kind == "op":
                level += (token.value in OPENING) - (token.value in CLOSING)
                if level <= 0:
                    break
            if token.kind == "sym" and token.value == name and after.value != "(":
                return False
        return True

    def _enclosed(self, opening: str, closing: str) -> list[t.Node]:
        self._expect(opening)
        outer, self._bar_closes = self._bar_closes, False
        items = self._items()
        self._bar_closes = outer
        self._expect(closing)
        return items

    def _bracketed(self) -> t.Node:
        opening = self._next.value
        if opening in CURRENCY:
            self._at += 1
            self._currency = opening
            return self._postfix()
        if opening == "emptyset":
            self._at += 1
            return t.Braces(())
        if opening == "{":
            group = self._group()
            self._group_ends.add(self._at - 1)
            return group
        if opening not in _CLOSINGS:
            raise t.Unparsable(f"has {opening[:20]!r} where an operand is expected")
        self._enter()
        self._at += 1
        if opening == "set{" and self._next.value.startswith("begin "):
            node = self._command(braced=True)  # this brace may stay unclosed
            self._accept("set}")
            self._depth -= 1
            return node
        outer, self._bar_closes = self._bar_closes, opening in ("|", "set{")
        # ]1, 3[ is an open interval, and [1, 3[ is open on the right.
        around, self._reversed = self._reversed, opening in "[]"
        items = [] if self._is("set}") else self._items()
        self._reversed = around
        builder = None
        if opening == "set{" and (self._accept("|") or self._accept(":")):
            builder = self._set_builder(items)
        closing, due = self._next, _CLOSINGS[opening]
        matches = closing.value in due if opening in "([]" else closing.value == due
        if closing.kind != "op" or not matches:
            shown = SHOWN.get(opening, opening)
            raise t.Unparsable(f"has no bracket that closes '{shown}'")
        self._at += 1
        self._bar_closes = outer
        self._depth -= 1
        return builder or build.bracket_node(opening, closing.value, items)

    # --- functions and commands

    def _function(self) -> t.Node:
        self._enter()
        name = self._next.value
        self._at += 1
        base = exponent = None
        while self._is_any(("^", "_")):
            if self._accept("_"):
                base = self._argument()
            else:
                self._at += 1
                exponent = self._argument()
        if name in _INVERSE and exponent and t.fold(exponent) == t.MINUS_ONE:
            name, exponent = _INVERSE[name], None
        node = build.apply(name, base, self._function_arguments())
        self._depth -= 1
        return node if exponent is None else t.Pow(node, numeric(exponent))

    def _function_arguments(self) -> list[t.Node]:
        if self._is("(") or self._is("{"):
            closing = ")" if self._next.value == "(" else "}"
            arguments = list(map(numeric, self._enclosed(self._next.value, closing)))
            if closing == "}":
                self._group_ends.add(self._at - 1)
            return arguments
        if self._next.kind == "fn":
            return [self._function()]
        if self._is("-"):
            self._at += 1
            return [t.Mul((t.MINUS_ONE, numeric(self._postfix())))]
        node = numeric(self._postfix())
        while self._next.kind in ("num", "sym", "const") or (
            self._next.kind == "cmd" and self._next.value in ("frac", "sqrt")
        ):
            node = self._juxtaposed(node, self._next)
        return [node]

    def _command(self, braced: bool = False) -> t.Node:
        self._enter()
        name = self._next.value
        self._at += 1
        if name in ("frac", "binom"):
            pair = [numeric(self._digit_argument()) for _ in range(2)]
            node = quotient(*pair) if name == "frac" else t.Fn(name, tuple(pair))
        elif name == "sqrt":
            degree: t.Node = _TWO
            if self._accept("["):
                degree = numeric(self._expression())
                self._expect("]")
            node = t.Pow(numeric(self._argument()), t.Pow(degree, t.MINUS_ONE))
        elif name in ("overline", "bar", "vec", "hat", "tilde", "dot", "ddot"):
            node = self._named(f"{name} {build.name_of(self._argument())}")
        elif name == "mathbb":
            letter = self._index()
            while self._is_any("^_"):
                self._at += 1
                letter += self._index()
            node = t.REALS if letter == "R" else t.Numbers(letter)
        elif name.startswith("begin "):
            node = self._environment(name[6:], braced)
        else:
            raise t.Unparsable(f"has \\{name[:20]}, which cannot be read here")
        self._depth -= 1
        return node

    def _environment(self, name: str, braced: bool) -> t.Node:
        """Parses a matrix, a system or cases; if `braced`, an array is not a matrix."""
        rows = self._rows(name)
        if not rows:
            raise t.Unparsable(f"has an empty environment {name[:20]}")
        cells = [cell for row in rows for cell in row]
        if len(cells) == 1 and name not in _BRACKETED:
            return self._whole(cells[0])
        said = any(is_relation(x) or x.kind == "text" for cell in cells for x in cell)
        plain = name in _MATRICES and not (braced or said)
        if plain or name in _BRACKETED:
            width = len(rows[0])
            if any(len(row) != width for row in rows):
                raise t.Unparsable("has matrix rows of different lengths")
            return t.Matrix(width, tuple(map(self._whole, cells)))
        if name not in _MATRICES | _ALIGNED | {"cases"}:
            raise t.Unparsable(f"has the environment {name[:20]}, which is not known")
        if all(len(row) == 1 for row in rows):
            stated = tuple(self._whole(row[0]) for row in rows)
            whens = tuple(row for row in stated if isinstance(row, t.When))
            if len(whens) == len(stated):
                return t.Cases(whens)
            if whens:
                raise t.Unparsable("has rows with and without a condition")
            one = len(stated) == 1 and name != "cases"
            return stated[0] if one else t.Braces(stated)
        if any(len(row) != 2 for row in rows):
            raise t.Unparsable("has a case that is not one value and one condition")
        return t.Cases(
            tuple(t.When(self._whole(v), self.condition_of(c)) for v, c in rows)
        )

    def _rows(self, name: str) -> list[list[list[Token]]]:
        rows: list[list[list[Token]]] = [[[]]]
        depth = 1
        while True:
            token = self._next
            if token.kind == "end":
                raise t.Unparsable(f"has an unclosed environment {name[:20]}")
            self._at += 1
            if token.kind == "cmd":
                depth += token.value.startswith("begin ")
                depth -= token.value.startswith("end ")
            if depth == 0:
                break
            cell, after = rows[-1][-1], self._next
            if depth == 1 and token.kind == "op" and token.value == "row":
                behind = next(x for x in self._tokens[self._at :] if x.value != "&")
                if not is_relation(behind):  # else it breaks a long chain
                    rows.append([[]])
            elif depth == 1 and token.kind == "op" and token.value == "&":
                aligns = is_relation(after) or bool(cell) and is_relation(cell[-1])
                if name not in _ALIGNED and not aligns:  # else it only aligns
                    rows[-1].append([])
            else:
                cell.append(token)
        found = [[_trimmed(cell) for cell in row] for row in rows]
        found = [[cell for cell in row if cell] for row in found]
        return [row for row in found if row]

    def _whole(self, tokens: list[Token]) -> t.Node:
        parser = type(self)([*tokens, Token("end", "", False)])
        parser._depth = self._depth
        stated = parser._items()
        if len(stated) == 1 and parser._next.kind == "text":
            return t.When(stated[0], self.condition_of(parser._tokens[parser._at : -1]))
        if parser._next.kind != "end":
            raise t.Unparsable(f"has an unexpected {parser._next.value[:20]!r}")
        return stated[0] if len(stated) == 1 else t.Several(tuple(stated))


def _trimmed(cell: list[Token]) -> list[Token]:
    kept = [at for at, token in enumerate(cell) if token.value not in (",", ";", ".")]
    return cell[kept[0] : kept[-1] + 1] if kept else []
