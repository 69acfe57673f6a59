"""Reads operands: numbers, names, brackets, functions, commands, environments."""

import itertools
import re

from .build import (
    apply,
    based,
    bracket_node,
    decimal,
    name_of,
    numeric,
    periodic,
    quotient,
    signed,
)
from .cursor import Cursor
from .tokens import Token, is_relation
from .tree import (
    EULER,
    IMAGINARY,
    MINUS_ONE,
    REALS,
    Add,
    Big,
    Braces,
    Call,
    Cases,
    Chain,
    Const,
    Expression,
    Fn,
    Matrix,
    Mul,
    Node,
    Numbers,
    Pow,
    Rel,
    Repeating,
    Several,
    Sym,
    Tuple,
    Unparsable,
    contains,
    fold,
    number,
    substitute,
)
from .units import CURRENCY

_FUNCTION_LETTERS = frozenset("fghFGH")
_PERIODIC_TAIL = re.compile(r"(\d{1,12}?)\1+$")
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_MATRICES = frozenset(
    "pmatrix bmatrix matrix array vmatrix smallmatrix Bmatrix Vmatrix".split()
)
_BRACKETED = _MATRICES - {"array"}
_ALIGNED = frozenset(
    "aligned align split gathered gather alignedat eqnarray equation".split()
)
_SYSTEMS = frozenset(f"begin {name}" for name in ("array", *_ALIGNED))
_CLOSINGS = {
    "(": ")]", "[": ")][", "]": "[]", "|": "|", "set{": "set}", "floor(": "floor)",
    "ceil(": "ceil)",
}  # fmt: skip
DOTS = Sym("…")
OPENING = frozenset(["(", "[", "{", "set{"])
CLOSING = frozenset([")", "]", "}", "set}"])


class Operands(Cursor):
    """Reads one operand at the cursor."""

    # --- operands

    def _argument(self) -> Node:
        """What a command or a caret takes: a group, one digit-run, one operand."""
        if self._is("{"):
            return self._group()
        if self._is_any("+-"):
            return signed(self._sign(), self._argument())
        self._enter()
        node = self._operand()
        self._depth -= 1
        return node

    def _digit_argument(self) -> Node:
        """As LaTeX reads `\\frac12` and `\\frac n2`: one digit, or one letter."""
        token = self._next
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            self._tokens[self._at] = Token("num", token.value[1:], False)
            return number(int(token.value[0]))
        if token.kind == "sym":
            self._at += 1
            return Sym(token.value)
        return self._argument()

    def _group(self) -> Node:
        """Braces: grouping, or a set where commas stand inside."""
        self._expect("{")
        outer, self._bar_closes = self._bar_closes, True
        items = self._items()
        if self._accept("|"):
            items = [self._set_builder(items)]
        self._bar_closes = outer
        self._expect("}")
        return items[0] if len(items) == 1 else Braces(tuple(items))

    def _operand(self) -> Node:
        token = self._next
        match token.kind:
            case "num":
                return self._number()
            case "sym":
                return self._symbol()
            case "const":
                self._at += 1
                return Const(token.value)
            case "text":
                self._at += 1
                return Sym(token.value.casefold())
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
        dot = self._is(".")
        mark, digits, end = (self._peek(dot + ahead) for ahead in range(3))
        in_brackets = mark.value == "(" and digits.value.isdigit() and end.value == ")"
        if in_brackets or mark.value in ("overline", "bar", "dot"):
            if (dot or "." in text) and not self._next.spaced:
                return self._repeating(text + "." * dot)
        if self._is("…") and "." in text and not self._next.spaced:
            self._at += 1
            places = text.split(".")[1]
            match = _PERIODIC_TAIL.search(places)
            # 0.577... shows no period yet.
            if match and (len(match[0]) > 2 or match[0] == places):
                start = text[: len(text) - len(match[0])]
                return Repeating(periodic(start, match[1]), decimal(text))
            return Call("…", (decimal(text),))
        return decimal(text)

    def _repeating(self, text: str) -> Node:
        """Digits under a bar or, behind the dot, in brackets: 0.(3)."""
        if self._is("."):
            self._at += 1
        block = ""
        while (
            self._is("(")
            and not block
            or self._next.kind == "cmd"
            and self._next.value in ("overline", "bar", "dot")
        ):
            dotted = self._next.value == "dot"
            closing = ")" if self._is("(") else "}"
            self._at += 1
            braced = closing == ")" or self._accept("{")
            if self._next.kind != "num" or not self._next.value.isdigit():
                raise Unparsable("has a bar over what is no digit")
            block += self._next.value
            self._at += 1
            if braced:
                self._expect(closing)
            if dotted and self._next.kind == "num" and self._peek().value == "dot":
                block += self._next.value  # between the first digit and the last
                self._at += 1
        if self._next.kind == "num" or self._is("("):
            raise Unparsable("has digits behind digits without end")
        return Repeating(periodic(text, block))

    def _symbol(self) -> Node:
        name = self._next.value
        self._at += 1
        if name == "m" and self._next.value == "angle" and self._next.kind == "sym":
            return self._symbol()  # the measure of an angle
        if name in ("angle", "triangle"):
            if (corners := self._corners()) is not None:
                if name == "angle":
                    corners = min(corners, corners[::-1])
                return Sym(f"{name} {corners}")
        if name in ("C", "A") and self._next.value in ("_", "^"):
            if (count := self._choices(name)) is not None:
                return count
        return self._named(name)

    def _corners(self) -> str | None:
        """Three points of an angle or a triangle: no product, their order counts."""
        three = [self._peek(i) for i in range(3)]
        if not all(t.kind == "sym" and len(t.value) == 1 for t in three):
            return None
        corners = "".join(t.value for t in three)
        if not corners.isupper() or self._peek(3).value in ("_", "'", "^"):
            return None
        self._at += 3
        return corners

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
        if len(parts) < 2 or not all(isinstance(p, Expression) for p in parts.values()):
            self._at = start
            return None
        top, bottom = parts["_"], parts["^"]
        if name == "C":
            return Fn("binom", (top, bottom))
        rest = Add((top, Mul((MINUS_ONE, bottom))))
        return quotient(Fn("fact", (top,)), Fn("fact", (rest,)))

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
            elif name in _FUNCTION_LETTERS and self._inverse_ahead():
                name += "^{-1}"
            elif (
                self._next.kind == "num"
                and not self._next.spaced
                and (self._next.value.isdigit() and "_" not in name)
                and not self._is_power_of_letters()
            ):
                name += "_" + self._next.value
                self._at += 1
            else:
                break
        if self._is("(") and self._is_call(name):
            return self._call(name)
        return Sym(name)

    def _is_power_of_letters(self) -> bool:
        """Whether the digits here have a letter as exponent: n2^k, but not x2^2."""
        if self._peek().value != "^":
            return False
        at, level = self._at + 2, 0
        while (token := self._tokens[at]).kind != "end":
            if token.kind in ("sym", "const", "fn"):
                return True
            level += (token.value == "{") - (token.value == "}")
            if level <= 0:
                return False
            at += 1
        return False

    def _inverse_ahead(self) -> bool:
        """Consumes `^{-1}` before an argument in brackets."""
        ahead = [self._peek(i).value for i in range(6)]
        if ahead[:2] == ["^", "{"] and ahead[2:] == ["-", "1", "}", "("]:
            self._at += 5
            return True
        return False

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
        parts, level = [], 0
        while True:
            token = self._next
            if token.kind == "end":
                raise Unparsable("has an unclosed subscript")
            self._at += 1
            level += (token.value == "{") - (token.value == "}")
            if level == 0:
                return "".join(parts).strip()
            if token.value not in ("{", "}"):
                parts.append(token.value.strip())

    def _is_call(self, name: str) -> bool:
        """f(...) always; x(t) and I(0), where multiplying would make no sense.

        But what is multiplied in its own brackets is no function: h(2x + h).
        """
        if name[0] in _FUNCTION_LETTERS:
            return not self._is_in_brackets(name)
        return self._peek().kind in ("num", "sym") and self._peek(2).value in (")", ",")

    def _is_in_brackets(self, name: str) -> bool:
        """Whether a name stands in the brackets ahead and is not called there."""
        level = 0
        for token, after in itertools.pairwise(self._tokens[self._at :]):
            if token.kind == "op":
                level += (token.value in OPENING) - (token.value in CLOSING)
                if level <= 0:
                    return False
            if token.kind == "sym" and token.value == name and after.value != "(":
                return True
        return False

    def _call(self, name: str) -> Node:
        arguments = tuple(map(numeric, self._enclosed("(", ")")))
        if name == "C" and len(arguments) == 2:
            return Fn("binom", arguments)
        return Call(name, arguments)

    def _enclosed(self, opening: str, closing: str) -> list[Node]:
        """Items between two brackets; a bar inside opens again."""
        self._expect(opening)
        outer, self._bar_closes = self._bar_closes, False
        items = self._items()
        self._bar_closes = outer
        self._expect(closing)
        return items

    def _bracketed(self) -> Node:
        opening = self._next.value
        if opening in CURRENCY:
            self._at += 1
            self._currency = opening
            return self._postfix()
        if opening == "…":
            self._at += 1
            return DOTS
        if opening == "emptyset":
            self._at += 1
            return Braces(())
        if opening == "{":
            if self._drop_braces():
                return self._operand()
            group = self._group()
            self._group_ends.add(self._at - 1)
            return group
        if opening not in _CLOSINGS:
            raise Unparsable(f"has {opening[:20]!r} where an operand is due")
        self._enter()
        self._at += 1
        if opening == "set{" and self._next.value in _SYSTEMS:
            node = self._system()
            self._depth -= 1
            return node
        start = self._at
        outer, self._bar_closes = self._bar_closes, opening in ("|", "set{")
        # ]1, 3[ is an open interval too, and so is [1, 3[ on its right.
        around, self._reversed = self._reversed, opening in "[]"
        items = [] if self._is("set}") else self._items()
        self._reversed = around
        if opening == "(" and len(items) > 1 and self._said_or(start, self._at):
            items = [Several(tuple(items), "or")]
        builder = None
        if opening == "set{" and (self._accept("|") or self._accept(":")):
            builder = self._set_builder(items)
        closing, due = self._next, _CLOSINGS[opening]
        matches = closing.value in due if opening in "([]" else closing.value == due
        if closing.kind != "op" or not matches:
            raise Unparsable(f"has no bracket that closes {opening!r}")
        self._at += 1
        self._bar_closes = outer
        self._depth -= 1
        return builder or bracket_node(opening, closing.value, items)

    def _drop_braces(self) -> bool:
        """Removes braces around one name before its index, power, prime or argument."""
        name, closing, behind = (self._peek(ahead) for ahead in (1, 2, 3))
        if closing != ("op", "}", closing.spaced) or behind.kind == "end":
            return False
        marked = behind.kind == "op" and behind.value in ("_", "^", "'")
        if name.kind == "fn" or name.kind == "sym" and marked:
            self._tokens[self._at : self._at + 3] = [name]
            self._group_ends = set()
            return True
        return False

    def _said_or(self, start: int, end: int) -> bool:
        """Whether "or" stands among these tokens: 63 or 12."""
        return any(t.kind == "op" and t.value == "or" for t in self._tokens[start:end])

    # --- functions and commands

    def _function(self) -> Node:
        self._enter()
        name = self._next.value
        self._at += 1
        base = exponent = None
        while self._is_any(("^", "_")):
            if self._accept("_"):
                self._split_index()
                base = self._argument()
            else:
                self._at += 1
                exponent = self._argument()
        if name in _INVERSE and exponent is not None and fold(exponent) == MINUS_ONE:
            name, exponent = _INVERSE[name], None
        node = apply(name, base, self._function_arguments())
        self._depth -= 1
        return node if exponent is None else Pow(node, numeric(exponent))

    def _split_index(self) -> None:
        """As TeX sets `\\log_23`: of digits that are all there is, the first alone."""
        index, behind = self._next, self._peek()
        ended = behind.kind == "op" and behind.value not in ("(", "{", "[", "set{", "|")
        if ended or behind.kind == "end":
            if index.kind == "num" and re.fullmatch("[2-9][0-9]+", index.value):
                parts = index.value[0], index.value[1:]
                split = [Token("num", part, False) for part in parts]
                self._tokens[self._at : self._at + 1] = split

    def _function_arguments(self) -> list[Node]:
        if self._is("(") or self._is("{"):
            closing = ")" if self._next.value == "(" else "}"
            arguments = list(map(numeric, self._enclosed(self._next.value, closing)))
            if closing == "}":
                self._group_ends.add(self._at - 1)
            return arguments
        if self._is("set{"):
            return list(map(numeric, self._bracketed().items))
        if self._next.kind == "fn":
            return [self._function()]
        if self._is("-"):
            self._at += 1
            return [Mul((MINUS_ONE, numeric(self._postfix())))]
        node = numeric(self._postfix())
        while self._next.kind in ("num", "sym", "const") or (
            self._next.kind == "cmd" and self._next.value in ("frac", "sqrt")
        ):
            node = self._juxtaposed(node, self._next)
        if self._is("/") and contains(node, Const) and self._peek().kind == "num":
            self._at += 1
            node = quotient(node, self._number())
        return [node]

    def _command(self) -> Node:
        self._enter()
        name = self._next.value
        self._at += 1
        if name == "frac":
            top = numeric(self._digit_argument())
            node = quotient(top, numeric(self._digit_argument()))
        elif name == "binom":
            top = numeric(self._digit_argument())
            node = Fn("binom", (top, numeric(self._digit_argument())))
        elif name == "sqrt":
            node = self._root()
        elif name == "overline" and self._digits_in_base():
            digits = self._tokens[self._at - 3].value
            node = based(digits, self._index())
        elif name in ("overline", "bar", "vec", "hat", "tilde", "dot", "ddot"):
            node = self._named(f"{name} {name_of(self._argument())}")
        elif name == "mathbb":
            node = self._number_set()
        elif name.startswith("begin "):
            node = self._environment(name[6:])
        elif name in ("sum", "prod"):
            node = self._big(name)
        else:
            raise Unparsable(f"has \\{name[:20]} out of place")
        self._depth -= 1
        return node

    def _digits_in_base(self) -> bool:
        """Consumes `{204}_` behind a bar over the digits of a number."""
        ahead = [self._peek(i) for i in range(4)]
        if [t.value for t in (ahead[0], *ahead[2:])] != ["{", "}", "_"]:
            return False
        if ahead[1].kind != "num":
            return False
        self._at += 4
        return True

    def _root(self) -> Node:
        degree = number(2)
        if self._accept("["):
            degree = numeric(self._expression())
            self._expect("]")
        return Pow(numeric(self._argument()), Pow(degree, MINUS_ONE))

    def _number_set(self) -> Node:
        letter = self._index()
        while self._is_any("^_"):
            self._at += 1
            letter += self._index()
        return REALS if letter == "R" else Numbers(letter)

    def _environment(self, name: str, braced: bool = False) -> Node:
        """Rows and cells: a matrix, a system, or a definition by cases.

        Args:
          name: the environment's.
          braced: whether a brace opens before it, which makes a system of any.
        """
        self._drop_alignment(name)
        outer, self._bar_closes = self._bar_closes, False
        rows: list[list[Node]] = [[]]
        while not (self._next.kind == "cmd" and self._next.value == f"end {name}"):
            if self._next.kind == "end":
                raise Unparsable(f"has an unclosed {name[:20]}")
            if self._accept("row"):
                rows.append([])
            elif self._is_any(("&", ",", ";", ".")):
                self._at += 1
            else:
                rows[-1].append(self._statement())
        self._at += 1
        rows = [row for row in rows if row]
        self._bar_closes = outer
        cells = tuple(cell for row in rows for cell in row)
        if not cells:
            raise Unparsable(f"has an empty {name[:20]}")
        if len(cells) == 1 and (braced or name not in _BRACKETED):
            return cells[0]
        if name in ("array", "matrix") and any(
            isinstance(cell, Rel | Chain) for cell in cells
        ):
            braced = True
        if name in _ALIGNED:
            return Braces(cells)
        if name in _MATRICES and not braced:
            width = len(rows[0])
            if any(len(row) != width for row in rows):
                raise Unparsable("has matrix rows of different lengths")
            return Matrix(width, cells, name == "vmatrix")
        if all(len(row) == 1 for row in rows):
            return Braces(tuple(row[0] for row in rows))
        return Cases(tuple(Tuple(tuple(row)) for row in rows))

    def _system(self) -> Node:
        """A brace before rows: nothing closes it."""
        name = self._next.value.removeprefix("begin ")
        self._at += 1
        node = self._environment(name, braced=True)
        self._accept("set}")
        return node

    def _drop_alignment(self, name: str) -> None:
        """Removes the "&" that only aligns signs, and the row break of a long chain."""
        end, depth, kept = self._at, 0, []
        for end in range(self._at, len(self._tokens)):
            token = self._tokens[end]
            begins = token.kind == "cmd" and token.value.startswith("begin ")
            depth += begins - (token.kind == "cmd" and token.value.startswith("end "))
            if depth < 0:
                break
            near = [*kept[-1:], *self._tokens[end + 1 : end + 2]]
            if depth == 0 and token == ("op", "&", token.spaced):
                if name in _ALIGNED or any(map(is_relation, near)):
                    continue
            if depth == 0 and is_relation(token) and kept:
                if kept[-1].kind == "op" and kept[-1].value == "row":
                    kept.pop()
            kept.append(token)
        self._tokens[self._at : end] = kept

    def _big(self, name: str) -> Node:
        lower = upper = None
        while self._is_any(("_", "^")):
            if self._accept("_"):
                lower = self._argument()
            else:
                self._at += 1
                upper = numeric(self._argument())
        if not isinstance(lower, Rel) or lower.op != "=":
            raise Unparsable(f"has a \\{name} without an index")
        index, start = lower.left, numeric(lower.right)
        # An index may take the name of a constant.
        letter = index if index in (IMAGINARY, EULER) else None
        if letter is not None:
            index = Sym(index.name)
        if not isinstance(index, Sym):
            raise Unparsable(f"has a \\{name} without an index")
        body = numeric(self._product())
        if letter is not None:
            body = substitute(body, {letter: index})
        if upper is None:
            raise Unparsable(f"has a \\{name} without an upper bound")
        return Big(name, index, start, upper, body)
