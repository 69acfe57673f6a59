"""The grammar of answers: one recursive descent from tokens to the tree as written.

From loose to tight: an answer is statements joined by commas and words; a statement is
quantities joined by relation signs; a quantity is an expression and the words that
measure it; an expression is sums, products, signs, powers and operands. Brackets hold
statements again.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from rl.verifier.nodes import (
    EULER,
    IMAGINARY,
    INFINITY,
    INTEGERS,
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
    REALS,
    UNNAMED,
    ZERO,
    Add,
    Assignment,
    Based,
    Big,
    Braces,
    Call,
    Cases,
    Chain,
    Clock,
    Congruence,
    Const,
    Degrees,
    Expression,
    Fn,
    Interval,
    Matrix,
    Mul,
    Node,
    Num,
    Numbers,
    Percent,
    Pow,
    Quantity,
    Ratio,
    Rel,
    Repeating,
    SetOp,
    Several,
    Sign,
    Sym,
    Tuple,
    Unparsable,
    Word,
    add,
    children,
    contains,
    divide,
    fold,
    is_integer,
    number,
    substitute,
    symbols,
    time_of_day,
)
from rl.verifier.relations import is_label, steps_of
from rl.verifier.spelling import plain_text
from rl.verifier.tokens import Token
from rl.verifier.units import CURRENCY, calculates, parse_unit

MAX_DEPTH = 80
_MAX_POSTFIXES = 12
_MAX_EXPONENT = 4_000
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
_STARTS = frozenset(["(", "[", "{", "set{", "|", "floor(", "ceil(", "…"])
_CLOSINGS = {
    "(": ")]", "[": ")][", "]": "[]", "|": "|", "set{": "set}", "floor(": "floor)",
    "ceil(": "ceil)",
}  # fmt: skip
_DOTS = Sym("…")
_RELATIONS = frozenset(
    "= < > <= >= != approx in notin equiv to parallel perp subset supset subseteq"
    " supseteq".split()
)
_OPENING = frozenset(["(", "[", "{", "set{"])
_CLOSING = frozenset([")", "]", "}", "set}"])
_AFTER_LABELS = _RELATIONS | {",", ";", "and", "or", "row", "&"}
_NOT_IN_LABELS = frozenset(["+", "-", "*", "/", "±", "∓", "cup", "minus"])
_ROUND = {"[": "(", "]": ")"}
_DENYING = frozenset(
    "not no never neither nor except without unless wrong false".split()
)
_DENIALS = _DENYING | set("if least most less more greater fewer than about".split())
_SET_SIGNS = frozenset(["|", "cap", "cup", "minus", "'", "set{"])
_ORDERS = frozenset("< > <= >= !=".split())
_SEPARATORS = {",": ",", ";": ",", "row": ",", "&": ",", "and": "and", "or": "or"}
_STRONG = frozenset([";", "or", "and", "row"])
_BEGINNING = "for|where|with|if|when|since|because"
_CONDITION = re.compile(rf"\(?(?:{_BEGINNING})\b")
_REASON = re.compile(r"\(?(?:since|because)\b")
_SAYING = re.compile(
    rf"(?!(?:{_BEGINNING})\b)(.*\w) (?:is|are|was|were|equals|has|have)", re.IGNORECASE
)
_ALL_BUT = re.compile(r"all reals?(?: numbers?)? (?:except|but|other than)(?: for)?")
# In the second column of a definition by cases.
_WHEN = re.compile(rf"(?:{_BEGINNING}|as|otherwise|else)\b")
_PERCENT_WORDS = frozenset("percent pct percentage percents".split())
_ORDINALS = frozenset("th st nd rd".split())
_HALF_DAYS = {
    "am": "am", "pm": "pm", "a m": "am", "p m": "pm", "in the morning": "am",
    "in the afternoon": "pm", "in the evening": "pm", "at night": "pm", "oclock": None,
    "noon": "pm", "midnight": "am",
}  # fmt: skip
_INTRODUCING = frozenset(
    "the final answer is are equals equal to exactly so thus hence therefore value we"
    " get have it solution solutions only there option choice about approximately"
    " roughly at".split()
)
_BEFORE_WORDS = _INTRODUCING | {"a", "an"}
# Before brackets, where they can do nothing but name what stands there.
_NAMING = frozenset("point pair ordered triple vector interval set".split())
_COUNTING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen"
    " fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_PARTS = "half third quarter fifth sixth seventh eighth ninth tenth".split()
_VALUE_WORDS = frozenset([*_COUNTING, *_TENS, *_PARTS, "both", "either"])
# Which numbers are meant, in words; of other words nothing is known.
_KIND_WORDS = frozenset(
    "integer integers natural naturals rational rationals irrational prime primes even"
    " odd whole positive negative nonnegative non-negative nonzero non-zero complex"
    " imaginary".split()
)
_KINDS = {
    "integer": "Z", "natural": "N", "rational": "Q", "positive": "R+",
    "negative": "R-", "positive integer": "Z+", "whole": "N", "complex": "C",
    "nonnegative integer": "N0", "non-negative integer": "N0",
}  # fmt: skip


def spoken_numbers() -> Iterator[tuple[str, Fraction]]:
    """Whole numbers up to 100 and proper fractions of up to tenths, in words."""
    yield from ((word, Fraction(n)) for n, word in enumerate(_COUNTING))
    for tens, word in enumerate(_TENS, start=2):
        yield word, Fraction(10 * tens)
        for n in range(1, 10):
            yield f"{word} {_COUNTING[n]}", Fraction(10 * tens + n)
    yield from ((f"{word} hundred", Fraction(100)) for word in ("a", "one"))
    for bottom, word in [*enumerate(_PARTS, start=2), (4, "fourth")]:
        yield from ((f"{one} {word}", Fraction(1, bottom)) for one in ("a", "one"))
        for top in range(2, bottom):
            yield f"{_COUNTING[top]} {word}s", Fraction(top, bottom)


_PHRASES: dict[str, Node] = {
    **{words: number(value) for words, value in spoken_numbers()},
    **dict.fromkeys(["all real numbers", "all reals", "all real"], REALS),
    "all integers": INTEGERS,
    "dne": Word("does not exist"),
    **dict.fromkeys(
        ["no solution", "no solutions", "empty set", "no real solutions"]
        + ["no real solution", "the empty set", "none"],
        Braces(()),
    ),
    "noon": Clock(0, "pm"),
    "midnight": Clock(0, "am"),
}
_CHOSEN = re.compile(r"(?:[Oo]ption|[Cc]hoice) (?=[A-Z]\Z)")
_IN_WORDS = frozenset([*_SEPARATORS, *"- ' ( ) . / { } in ? \" !".split()])


def quotient(top: Node, bottom: Node) -> Node:
    """A quotient as written; dy/dx is a derivative and not y/x."""
    for mark in (Sym("d"), Sym("partial")):
        if isinstance(bottom, Mul) and len(bottom.factors) == 2:
            if bottom.factors[0] == mark:
                above = top.factors if isinstance(top, Mul) else (top,)
                if mark in above:
                    rest = tuple(part for part in above if part != mark)
                    return Call("derivative", (Mul(rest), bottom.factors[1]))
    return Mul((top, Pow(bottom, MINUS_ONE)))


def _numeric(node: Node) -> Node:
    if isinstance(node, Expression):
        return node
    raise Unparsable(f"calculates with a {type(node).__name__.lower()}")


def _unmarked(node: Node) -> Node:
    if isinstance(node, Percent | Degrees):
        raise Unparsable("has two signs for percent or degrees")
    return _numeric(node)


def _signed(sign: Node, node: Node) -> Node:
    if sign is ONE:
        return node
    if sign == Sign(1) and isinstance(node, Tuple | Matrix):
        # All of it has the one sign.
        return Several((node, _signed(MINUS_ONE, node)), ",")
    if sign is MINUS_ONE:
        match node:
            case Tuple(items):
                return Tuple(tuple(_signed(sign, item) for item in items))
            case Based(digits, base):
                return Based("-" + digits, base)
            case Degrees(value) | Percent(value):
                return type(node)(_signed(sign, value))
            case Repeating(value, Num(shown, ulp)):
                return Repeating(-value, Num(-shown, ulp))
            case Call("…", (Num(shown, ulp),)):
                return Call("…", (Num(-shown, ulp),))
    return _multiplied((sign, node))


def _multiplied(factors: Sequence[Node]) -> Node:
    """A product; of a matrix and numbers, the matrix of the products."""
    matrices = [part for part in factors if isinstance(part, Matrix)]
    if len(matrices) != 1 or matrices[0].determinant:
        return Mul(tuple(map(_numeric, factors)))
    scale = tuple(_numeric(part) for part in factors if part is not matrices[0])
    cells = tuple(Mul((*scale, _numeric(cell))) for cell in matrices[0].cells)
    return Matrix(matrices[0].width, cells)


def _added(terms: Sequence[Node]) -> Node:
    """A sum of numbers, or of matrices of one shape."""
    shapes = {
        (term.width, len(term.cells))
        for term in terms
        if isinstance(term, Matrix) and not term.determinant
    }
    if len(shapes) != 1 or not all(isinstance(term, Matrix) for term in terms):
        return Add(tuple(map(_numeric, terms)))
    columns = zip(*(term.cells for term in terms), strict=True)
    cells = tuple(Add(tuple(map(_numeric, column))) for column in columns)
    return Matrix(terms[0].width, cells)


def _transposed(node: Matrix) -> Matrix:
    width = node.width
    cells = [cell for column in range(width) for cell in node.cells[column::width]]
    return Matrix(len(node.cells) // width, tuple(cells))


def _only(items: list[Node]) -> Node:
    if len(items) != 1:
        raise Unparsable("has several items where one is due")
    return items[0]


class Parser:
    """Reads one answer.

    Args:
      tokens: what `tokenize` returned.

    Attributes:
      parameters: names that its conditions speak of: k in Z, any constant C.
    """

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bar_closes = False
        self._reversed = False
        self._currency: str | None = None
        self._group_ends: set[int] = set()  # of braces that are no command's argument
        self.parameters: set[str] = set()

    # --- the cursor

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _is(self, value: str) -> bool:
        token = self._tokens[self._at]
        return token.value == value and token.kind == "op"

    def _is_any(self, values) -> bool:
        token = self._tokens[self._at]
        return token.kind == "op" and token.value in values

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

    # --- whole answers

    def answer(self) -> Node:
        """The whole text."""
        self._skip_introduction()
        if (phrase := self._only_words()) is not None:
            return phrase
        if self._is_any(("=", "approx", "equiv", "to")):
            self._at += 1
        if (rest := self._all_but()) is not None:
            return rest
        groups: list[list[Node]] = [[]]
        conditions: list[Node] = []
        joined, of_one = ",", False
        while True:
            node = self._statement()
            if _is_membership(node):
                conditions += _memberships([*groups[-1][1:], node])
                while len(groups[-1]) > 1 and isinstance(groups[-1][-1], Sym):
                    groups[-1].pop()
            else:
                groups[-1].append(node)
            if self._is("(") and _REASON.match(self._peek().value.lower()):
                self._at += 1
            if self._is("("):
                start, aside = self._at, self._operand()
                if isinstance(aside, Rel | Chain | Congruence):
                    conditions.append(aside)
                    of_one |= not _is_membership(aside)
                elif isinstance(aside, Tuple) and _is_membership(aside.items[-1]):
                    conditions += _memberships(aside.items)
                else:
                    self._at = start
                    if isinstance(aside, Tuple | Interval):
                        continue
            if self._next.kind == "end":
                break
            if self._at_condition():
                conditions += self._conditions_behind()
                break
            strong, word = self._separator()
            if self._next.kind == "end":
                break
            if word != ",":
                joined = word
            elif self._at_condition():
                # A relation there is a part: both answers have it, or none.
                start, parameters = self._at, self.parameters.copy()
                said = self._conditions_behind()
                if all(map(_is_membership, said)):
                    conditions += said
                    break
                self._at, self.parameters = start, parameters
            if strong:
                groups.append([])
        if joined != "or" and any(map(len, groups)):
            rest = [[n for n in group if not _is_in_reals(n)] for group in groups]
            groups = rest if any(rest) else groups
        if not any(groups) and len(conditions) == 1:
            groups, conditions = [conditions], []  # what it belongs to is all it says
        if of_one and sum(map(len, groups)) > 1:
            raise Unparsable("has a condition of its own for one of several answers")
        node = _joined([group for group in groups if group], joined)
        return self._restricted(node, conditions)

    def _all_but(self) -> Node | None:
        """ "All real numbers except 0 and 2"."""
        end = self._at
        while self._tokens[end].kind == "text":
            end += 1
        words = " ".join(t.value.lower() for t in self._tokens[self._at : end])
        if not _ALL_BUT.fullmatch(words):
            return None
        self._at = end
        values = [
            part.right if isinstance(part, Rel) and _assigns(part) else part
            for part in self._items()
        ]
        without = Braces(tuple(values))
        if self._next.kind != "end":
            raise Unparsable(f"has {self._next.value[:20]!r} out of place")
        return SetOp("minus", REALS, without)

    def _at_condition(self) -> bool:
        token = self._next
        return (
            token.kind == "text" and _CONDITION.match(token.value.lower()) is not None
        )

    def _at_separator(self) -> bool:
        return self._is_any(_SEPARATORS)

    def _separator(self) -> tuple[bool, str]:
        """Consumes separators: whether one was stronger than a comma, and the word."""
        if not self._at_separator():
            raise Unparsable(f"has {self._next.value[:20]!r} out of place")
        strong, word = False, ","
        while self._at_separator():
            strong |= self._next.value in _STRONG
            if _SEPARATORS[self._next.value] != ",":
                word = self._next.value
            self._at += 1
        return strong, word

    def _only_words(self) -> Node | None:
        tokens = self._tokens[self._at : -1]
        if not any(token.kind == "text" for token in tokens):
            return None
        for token in tokens:
            if token.kind not in ("text", "sym", "op"):
                return None
            if token.kind == "op" and token.value not in _IN_WORDS:
                return None
            if token.kind == "sym" and not token.spaced:
                if len(tokens) > 1 and token is not tokens[0]:
                    return None
        pieces: list[list[str]] = [[]]
        joined = ","
        for token in tokens:
            if token.kind == "op" and token.value in _SEPARATORS:
                pieces.append([])
                if _SEPARATORS[token.value] != ",":
                    joined = token.value
            elif token.value not in ("{", "}"):
                pieces[-1].append(token.value)
        names = [" ".join(piece) for piece in pieces if piece]
        if len(names) > 1 and all(len(piece) <= 2 for piece in pieces):
            return Several(tuple(map(_word, names)), joined)
        return _word(" ".join(t.value for t in tokens if t.value not in ("{", "}")))

    def _skip_introduction(self) -> None:
        start = self._at
        behind = next(t for t in self._tokens[start:] if t.kind != "text")
        known = _INTRODUCING | (_NAMING if behind.value in _STARTS else set())
        while self._next.kind == "text" and all(
            word.rstrip(":,") in known for word in self._next.value.lower().split()
        ):
            self._at += 1
            self._accept(":")
        if self._next.kind == "end" or self._at_separator():
            self._at = start

    def _items(self) -> list[Node]:
        """Statements up to a closing bracket, separated by commas or joining words."""
        found = [self._statement()]
        while self._at_separator() and self._next.value != "&":
            self._at += 1
            if self._at_separator():
                continue
            if self._is_any((")", "}", "]", "set}")):
                break
            found.append(self._statement())
        return found

    # --- statements

    def _statement(self) -> Node:
        """Quantities joined by relation signs."""
        self._skip_label_words()
        self._join_label()
        parts, relations = [self._quantity()], []
        while self._is_any(_RELATIONS):
            relations.append(self._next.value)
            self._at += 1
            if relations[-1] in "<>" and self._accept("="):
                relations[-1] += "="
            parts.append(self._quantity())
        if self._is("(") and self._peek().value == "approx":
            # "1/3 (\approx 0.333)"
            self._at += 2
            relations.append("approx")
            parts.append(self._quantity())
            self._expect(")")
        if not relations:
            if (
                self._next.value == "pmod"
                or self._is("(")
                and self._peek().value == "mod"
            ):
                return self._congruence(Rel("equiv", UNNAMED, parts[0]))
            return parts[0]
        steps = tuple(map(Rel, relations, parts[:-1], parts[1:]))
        if relations == ["equiv"]:
            if congruence := self._congruence(steps[0]):
                return congruence
            if isinstance(parts[0], Call):
                return Rel("=", *parts)  # f(x) is the same everywhere
        return steps[0] if len(steps) == 1 else Chain(steps)

    def _congruence(self, step: Rel) -> Node | None:
        """With what follows: `\\pmod 5`, `(mod 5)` or `\\bmod 5`."""
        modulus: Node | None = None
        if isinstance(step.right, Fn) and step.right.name == "mod":
            value, modulus = step.right.arguments
            step = Rel("equiv", step.left, value)
        elif self._next.value == "pmod":
            self._at += 1
            modulus = self._argument()
        elif self._is("(") and self._peek().value == "mod":
            self._at += 2
            modulus = self._expression()
            self._expect(")")
        if modulus is None:
            return None
        if not all(isinstance(p, Expression) for p in (step.left, step.right, modulus)):
            raise Unparsable("has a congruence of what are no numbers")
        return Congruence(step, modulus)

    def _skip_label_words(self) -> None:
        """Before "Area = 5" or "for n = 1": one name, or nothing."""
        if self._next.kind != "text":
            return
        value = self._next.value.strip()
        if _WHEN.match(value.lower()) and self._peek().kind != "end":
            if not _WHEN.sub("", value.lower()).strip():
                self._at += 1
                return
        end = self._at
        while self._tokens[end].kind == "text":
            end += 1
        words = " ".join(token.value for token in self._tokens[self._at : end])
        follower = self._tokens[end]
        if follower.kind == "op" and follower.value in (":", "="):
            name, end = words, end + 1
        elif words.rstrip().endswith((":", "=")) and end == self._at + 1:
            name = words.rstrip(" :=")
        elif (said := _SAYING.fullmatch(words.rstrip(" :"))) and follower.kind != "end":
            name = said[1]
        else:
            return
        label = Token("sym", _uncalculated(name).casefold(), False)
        self._tokens[self._at : end] = [label, Token("op", "=", False)]

    def _join_label(self) -> None:
        """Makes one name of what stands before "=" and is no formula.

        What is called there may hold any statement: P(X = 2), E[X], P(A | B). None of
        it is read, but two such labels are the same only where they are written alike.
        """
        start, level = self._at, 0
        for end in range(start, len(self._tokens)):
            token = self._tokens[end]
            if token.kind == "end":
                return
            if token.kind == "op":
                level += (token.value in _OPENING) - (token.value in _CLOSING)
                if level < 0 or level == 0 and token.value in _AFTER_LABELS:
                    break
                if level == 0 and token.value in _NOT_IN_LABELS:
                    return
        if token.value not in ("=", "approx") or end == start:
            return
        label = self._tokens[start:end]
        if not _is_opaque(label):
            return
        _uncalculated(" ".join(t.value for t in label if t.kind == "text"))
        name = " ".join(_ROUND.get(part.value, part.value) for part in label)
        self._tokens[start:end] = [Token("sym", name, label[0].spaced)]

    # --- conditions

    def _conditions_behind(self) -> list[Node]:
        """What "for", "where" or "if" says, to the end of the answer.

        It is no part of the answer where it is words and relations. A value there
        belongs to a second answer: "5 for men, 6 for women".
        """
        words: list[str] = []
        found: list[Node] = []
        if _REASON.match(self._next.value.lower()):
            return []  # why, and no part of the answer
        while self._next.kind != "end":
            if self._next.kind == "text":
                words += re.findall(r"[\w-]+", self._next.value.lower())
                self._at += 1
            elif self._at_separator() or self._is("."):
                self._at += 1
            elif self._next.kind == "sym" and (
                self._peek().kind in ("text", "end")
                or self._peek().kind == "op"
                and self._peek().value in _SEPARATORS
            ):
                found.append(self._symbol())
            else:
                found.append(self._statement())
        if any(word in _VALUE_WORDS or word[:1].isdigit() for word in words):
            raise Unparsable("has a value behind its condition")
        if not _DENYING.isdisjoint(words):
            raise Unparsable("has a condition that is denied")
        mentioned = {word for word in words if len(word) == 1 and word != "a"}
        conditions: list[Node] = []
        for node in found:
            if isinstance(node, Sym):
                mentioned.add(node.name)
            elif isinstance(node, Rel | Chain | Congruence):
                conditions.append(node)
            elif symbols(node) or not conditions or conditions[-1].op != "!=":
                raise Unparsable("has a value behind its condition")
        if not (found or mentioned or _KIND_WORDS.intersection(words)):
            raise Unparsable("has a condition that names nothing")
        if kinds := " ".join(word for word in words if word in _KIND_WORDS):
            kind = Numbers(_KINDS.get(kinds.removesuffix("s"), kinds))
            return [*conditions, *(Rel("in", Sym(n), kind) for n in mentioned or [""])]
        self.parameters |= mentioned
        return conditions

    def _restricted(
        self, node: Node, conditions: list[Node], subject: str | None = None
    ) -> Node:
        """An answer under its conditions: those on what it is about cut it down.

        What else they say of its names goes without saying; an integer that it is not
        about is a parameter.

        Args:
          node: the answer.
          conditions: relations that were stated beside it.
          subject: what it is about, where that is said.
        """
        whole = symbols(node)
        for condition in conditions:
            if _is_membership(condition):
                names, numbers = symbols(condition.left), condition.right
            elif _is_in_reals(condition):
                continue
            else:
                names, numbers = symbols(condition), None
                if _says_a_value(condition):
                    raise Unparsable("has a value behind its condition")
                if not names & whole:
                    raise Unparsable("has a condition on what it does not name")
            about = [n for n in names if n == subject or _ranges_over(node, n, whole)]
            if numbers is None:
                node = SetOp("cap", node, condition) if about else node
            elif not about:
                self.parameters |= names if numbers == INTEGERS else set()
            elif not isinstance(condition.left, Sym):
                raise Unparsable("has a condition on more than a name")
            elif not (isinstance(node, Congruence) and numbers == INTEGERS):
                node = SetOp("cap", node, numbers)
        return node

    def _set_builder(self, items: list[Node]) -> Node:
        """`{x | ...}`: what the right side describes, within what the left one says."""
        self._bar_closes = False
        start = self._at
        stated = self._items()
        pattern, domain = _only(items), REALS
        if isinstance(pattern, Rel) and pattern.op == "in":
            pattern, domain = pattern.left, pattern.right
        memberships = [part for part in stated if _is_membership(part)]
        rest = [part for part in stated if not _is_membership(part)]
        if isinstance(pattern, Sym) and rest:
            joined = "or" if self._said_or(start, self._at) else ","
            node = rest[0] if len(rest) == 1 else Several(tuple(rest), joined)
            if isinstance(domain, Numbers):
                memberships.append(Rel("in", pattern, domain))
            elif domain != REALS:
                node = SetOp("cap", node, domain)
            node = self._restricted(node, memberships, pattern.name)
            # Its name is bound, which that of a bare condition is not.
            return Braces((node,)) if isinstance(node, Rel | Chain) else node
        if (
            domain == REALS
            and not rest
            and all(p.right == INTEGERS for p in memberships)
        ):
            # The values of an expression: { 2k | k in Z }.
            names = [part.left.name for part in memberships if type(part.left) is Sym]
            if isinstance(pattern, Expression) and set(names) == symbols(pattern):
                self.parameters.update(names)
                return Braces((pattern,))
        if isinstance(pattern, Tuple) and rest and not memberships:
            names = [p.name if isinstance(p, Sym) else "" for p in pattern.items]
            real = domain == REALS or getattr(domain, "letter", "")[:1] == "R"
            if real and "" not in names and names == sorted(names):
                return rest[0] if len(rest) == 1 else Braces(tuple(rest))
        # Known by its words alone.
        return Tuple((Rel("in", pattern, domain), *stated))

    # --- quantities

    def _quantity(self) -> Node:
        outer, self._currency = self._currency, None
        first = self._next
        node = self._expression()
        if self._is(":") and not self._bar_closes:
            node = self._ratio(node, first)
        node = self._measured(node)
        while isinstance(node, Quantity) and self._next.kind == "num":
            # "2 hours 30 minutes"
            node = _compound([node, self._measured(self._number())])
            if node is None:
                raise Unparsable("has two quantities in a row")
        self._currency = outer
        return node

    def _ratio(self, first: Node, token: Token) -> Node:
        """3 : 5 : 7, or a time 3:05; but "C: 5" is a label and its value."""
        if isinstance(first, Sym) and len(first.name) == 1:
            if self._peek().kind != "sym":
                self._at += 1
                return Rel("=", first, self._quantity())
        minutes = self._peek().value
        if token.kind == "num" and len(minutes) == 2 and minutes < "10":
            if minutes.isdigit() and not self._peek(2).value == ":":
                self._at += 2
                if is_integer(first) and (
                    clock := time_of_day(int(first.value), int(minutes))
                ):
                    return clock
                self._at -= 2
        parts = [first]
        while self._accept(":"):
            parts.append(self._expression())
        if not all(isinstance(part, Expression) for part in parts):
            raise Unparsable("has a ratio of what are no numbers")
        return Ratio(tuple(parts))

    def _measured(self, node: Node) -> Node:
        if (based := self._in_base()) is not None:
            return based
        words = self._unit_text()
        if self._currency is not None:
            if not isinstance(node, Expression):
                raise Unparsable("has a currency sign before what is no number")
            words = f"{self._currency} {words}"
        if not words or words.lower() in _ORDINALS:
            return node
        first, _, rest = words.lower().replace("per cent", "percent").partition(" ")
        if first in _PERCENT_WORDS and isinstance(node, Expression):
            node, words = Percent(_unmarked(node)), rest
        if isinstance(node, Percent):
            # What it is a part of is no unit; but "of half" makes it another number.
            whole = parse_unit(words) if words[:3] == "of " else None
            if not words or whole is not None and whole.multiplier == 1:
                return node
        if words.lower() in _HALF_DAYS:
            clock = _with_half(node, _HALF_DAYS[words.lower()])
            if clock == _PHRASES.get(words.lower(), clock) and clock is not None:
                return clock
        if not isinstance(node, Expression | Ratio | Based):
            if isinstance(node, Tuple | Interval | Braces | SetOp):
                # A measure is of all its numbers; (0, 1) closed is another one.
                reading = parse_unit(words)
                if reading and reading.multiplier == 1:
                    if not isinstance(reading.unit, frozenset):
                        return node
            raise Unparsable(f"has a value beside {words[:40]!r}")
        if first.startswith("degree"):
            if rest in ("", "angle"):
                return Degrees(_unmarked(node))
            words = words.partition(" ")[2]
        reading = parse_unit(words)
        if reading is None:
            raise Unparsable(f"has a value beside {words[:40]!r}")
        if reading.multiplier != 1:
            node = Mul((_numeric(node), Num(reading.multiplier)))
        if reading.unit is None:
            return node
        return Quantity(node, reading.unit, reading.scale)

    def _in_base(self) -> Node | None:
        """ "1010 base 2": a number whose base is said behind it."""
        before, words = self._tokens[self._at - 1], self._next.value.lower()
        if before.kind != "num" or self._next.kind != "text":
            return None
        words = words.removeprefix("in").strip(" (~")
        if not words.startswith("base"):
            return None
        self._at += 1
        if words == "base" and self._next.kind in ("num", "text"):
            words += self._next.value
            self._at += 1
        return _based(before.value, words)

    def _unit_text(self) -> str:
        """The words, and their exponents, that follow a number."""
        words: list[str] = []
        opened = 0
        while True:
            token, after = self._next, self._peek()
            if self._is_any("([") and after.kind == "text":
                if _CONDITION.match(after.value.lower()):
                    break
                opened += 1
                self._at += 1
            elif opened and self._is_any(")]"):
                opened -= 1
                self._at += 1
            elif token.kind == "text":
                value = token.value.strip(" .~()[]")
                lower = value.lower()
                if _CONDITION.match(lower) and not lower.startswith("for each"):
                    break
                words.append(value)
                self._at += 1
            elif not words and token.kind == "op" and token.value in CURRENCY:
                words.append(token.value)
                self._at += 1
            elif words and token.value == "^":
                self._at += 1
                exponent = fold(self._argument())
                if not isinstance(exponent, Num):
                    raise Unparsable("has a unit with an exponent that is no number")
                words.append(f"^ {exponent.value}")
            elif token.value == "/" and token.kind == "op" and after.kind == "text":
                words.append("/")
                self._at += 1
            elif words and token.value in ("/", "*") and after.kind in ("sym", "text"):
                words += [token.value, after.value]
                self._at += 2
            elif words and token.kind == "op" and token.value in (".", "-", "'"):
                words += ["-"] if token.value == "-" and after.kind == "text" else []
                self._at += 1
            elif words and token.kind == "sym" and token.spaced:
                words.append(token.value)
                self._at += 1
            else:
                break
        return " ".join(words)

    # --- expressions

    def _expression(self) -> Node:
        """An expression, or sets joined by set operations."""
        self._enter()
        left = self._sum()
        while self._is_any(("cup", "cap", "minus")):
            kind = self._next.value
            self._at += 1
            left = SetOp(kind, left, self._sum())
        if self._accept("over"):
            left = quotient(_numeric(left), _numeric(self._sum()))
        elif self._accept("choose"):
            left = Fn("binom", (_numeric(left), _numeric(self._sum())))
        self._depth -= 1
        return left

    def _sum(self) -> Node:
        terms = [self._product()]
        while self._is_any("+-±∓"):
            if self._next.value in "+-" and self._peek().value in (",", ")", "", "}"):
                raise Unparsable("ends in a sign")
            sign = self._sign()
            if sign is MINUS_ONE and isinstance(terms[0], Interval | Numbers | Braces):
                return SetOp("minus", terms[0], self._product())
            terms.append(_signed(sign, self._product()))
        if len(terms) == 1:
            return terms[0]
        if any(isinstance(term, Matrix) for term in terms):
            return _added(terms)
        terms = tuple(map(_numeric, terms))
        # What dots leave out depends on every term that is written.
        return Call("…", terms) if _DOTS in terms else Add(terms)

    def _sign(self) -> Node:
        value = self._next.value
        self._at += 1
        return {"±": Sign(1), "∓": Sign(-1), "-": MINUS_ONE}.get(value, ONE)

    def _product(self) -> Node:
        factors = [self._unary()]

        def product() -> Node:
            if len(factors) > 1:
                factors[:] = [_multiplied(factors)]
            return factors[0]

        while True:
            token, after = self._next, self._peek()
            if token.kind == "op" and token.value == "*":
                self._at += 1
                factors.append(self._unary())
            elif token.kind == "op" and token.value == "/":
                if self._peek().kind == "text":
                    return product()
                self._at += 1
                top = _numeric(product())
                factors[:] = [quotient(top, _numeric(self._unary()))]
            elif token.kind == "op" and token.value == "mod":
                self._at += 1
                value = _numeric(product())
                factors[:] = [Fn("mod", (value, _numeric(self._unary())))]
            elif self._starts_operand(token) and not isinstance(
                factors[-1], Tuple | Interval
            ):
                start = self._at
                if token.value != "(":
                    factors[-1] = self._juxtaposed(factors[-1], token)
                elif after.kind == "text" or after.value in ("mod", "approx"):
                    return product()
                elif isinstance(factors[-1], Call) and factors[-1].name == "after":
                    names = [part.name for part in factors[-1].arguments]
                    factors[-1] = self._call(" after ".join(names))
                elif isinstance(right := self._postfix(), Rel | Chain) or (
                    isinstance(right, Tuple) and _is_membership(right.items[-1])
                ):
                    # A condition in brackets, which is the caller's to judge.
                    self._at = start
                    return product()
                elif isinstance(right, Tuple) and type(factors[-1]) is Sym:
                    factors[-1] = Call(factors[-1].name, right.items)  # P(-1, 2)
                else:
                    factors.append(right)
            else:
                return product()

    def _juxtaposed(self, left: Node, token: Token) -> Node:
        """Implicit multiplication, and whole numbers beside a proper fraction."""
        before, ahead = self._printed_before(), self._printed_ahead()
        mixed = False
        if ahead.kind == "num" and before.kind in ("num", "sym"):
            bare = ahead is token and before is self._tokens[self._at - 1]
            mixed = bare and before.kind == "num" and self._peek().value == "/"
            if before.kind == "num" and not mixed:
                raise Unparsable("has a number after an operand with no operator")
            if ahead is token and before.kind == "sym" and self._peek().value != "^":
                raise Unparsable("has a number after an operand with no operator")
        elif ahead.value == "frac":
            mixed = before.kind == "num" and before.value.isdigit()
        right = self._operand()
        if mixed and token.kind == "num":
            self._expect("/")
            right = quotient(right, self._operand())
        if mixed and _is_proper(right):
            if isinstance(left, Num):
                return self._marked(Add((left, right)))
            if isinstance(left, Mul) and isinstance(left.factors[-1], Num):
                if left.factors[:-1] == (MINUS_ONE,):
                    whole = self._marked(Add((left.factors[-1], right)))
                    return Mul((MINUS_ONE, _numeric(whole)))
        if mixed and token.kind == "num":
            raise Unparsable("has two numbers in a row")
        right = self._marked(right)
        if isinstance(right, Matrix):
            return _multiplied((left, right))
        left = _numeric(left)
        above = left.factors if isinstance(left, Mul) else (left,)
        return Mul((*above, _numeric(right)))

    def _printed_before(self) -> Token:
        """The last token that can be seen: braces that only group cannot."""
        at = self._at - 1
        while at in self._group_ends:
            at -= 1
        return self._tokens[at]

    def _printed_ahead(self) -> Token:
        """The next token that can be seen."""
        at = self._at
        while self._tokens[at].value == "{" and self._tokens[at].kind == "op":
            at += 1
        return self._tokens[at]

    def _starts_operand(self, token: Token) -> bool:
        if token.kind in ("num", "sym", "const", "fn"):
            return True
        if token.kind == "cmd":
            return not token.value.startswith("end ") and token.value != "pmod"
        if token.kind == "op" and token.value == "|":
            return not self._bar_closes
        if token.kind == "op" and token.value == "[":
            return not self._reversed
        return token.kind == "op" and token.value in _STARTS

    def _unary(self) -> Node:
        if self._is_any("+-±∓"):
            self._enter()
            sign = self._sign()
            node = _signed(sign, self._unary())
            self._depth -= 1
            return node
        return self._postfix()

    def _postfix(self) -> Node:
        """An operand with its powers, indices and marks."""
        return self._marked(self._operand())

    def _marked(self, node: Node) -> Node:
        for _ in range(_MAX_POSTFIXES):
            if self._next.kind != "op":
                break
            value = self._next.value
            if value == "^":
                node = self._raised(node)
            elif value == "!":
                self._at += 1
                name = "fact2" if self._accept("!") else "fact"
                node = Fn(name, (_numeric(node),))
            elif value == "%":
                self._at += 1
                node = Percent(_unmarked(node))
            elif value == "°" and isinstance(node, Sym) and self._peek().kind == "sym":
                self._at += 1  # f after g; 5 degrees have a number before them
                node = Call("after", (node, self._symbol()))
            elif value == "°":
                self._at += 1
                node = self._degrees(node)
            elif value == "_" and isinstance(node, Num):
                bracketed = self._tokens[self._at - 1].value == ")"
                digits = self._tokens[self._at - 1 - bracketed].value
                self._at += 1
                node = _based(digits, self._index())
            elif value == "_" and isinstance(node, Expression):
                self._at += 1
                node = Call("_" + self._index(), (node,))
            else:
                break
        return node

    def _raised(self, base: Node) -> Node:
        """After an operand: a power, or what is only written like one."""
        self._at += 1
        braced = self._is("{")
        inner = self._peek() if braced else self._next
        if inner.value == "o" and isinstance(base, Num):
            inner = Token("op", "°", inner.spaced)
        if inner.kind == "op" and inner.value in ("°", "'"):
            self._at += 1 + braced
            while braced and self._accept("'"):
                pass
            if braced:
                self._expect("}")
            return Call("'", (base,)) if inner.value == "'" else self._degrees(base)
        if inner.kind == "text":
            if inner.value.strip().lower() not in _ORDINALS:
                raise Unparsable("has words as an exponent")
            self._at += 1 + braced
            if braced:
                self._expect("}")
            return base
        if inner.kind == "sym" and inner.value in ("T", "top"):
            if isinstance(base, Matrix | Tuple) and not getattr(base, "determinant", 0):
                self._at += 1 + braced
                if braced:
                    self._expect("}")
                return _transposed(base) if isinstance(base, Matrix) else base
        letters = "".join(self._peek(i).value for i in (1, 2))
        if isinstance(base, Num) and braced and letters in _ORDINALS:
            if self._peek(3).value == "}":
                self._at += 4
                return base
        exponent = self._argument()
        if self._is("^"):
            self._enter()
            exponent = self._raised(exponent)
            self._depth -= 1
        return Pow(_numeric(base), _numeric(exponent))

    def _degrees(self, node: Node) -> Node:
        """Degrees, with minutes and seconds where they follow."""
        total = _unmarked(node)
        last = 1
        while self._next.kind == "num":
            marks = "".join(self._peek(i).value for i in (1, 2))
            doubled = marks == "''"
            share = 3600 if doubled or marks[:1] == '"' else 60
            if marks[:1] not in ("'", '"') or share <= last:
                break
            total = add(total, divide(self._number(), number(share)))
            self._at += 1 + doubled
            last = share
        return Degrees(total)

    # --- operands

    def _argument(self) -> Node:
        """What a command or a caret takes: a group, one digit-run, one operand."""
        if self._is("{"):
            return self._group()
        if self._is_any("+-"):
            return _signed(self._sign(), self._argument())
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
                return Repeating(_periodic(start, match[1]), _decimal(text))
            return Call("…", (_decimal(text),))
        return _decimal(text)

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
        return Repeating(_periodic(text, block))

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
                level += (token.value in _OPENING) - (token.value in _CLOSING)
                if level <= 0:
                    return False
            if token.kind == "sym" and token.value == name and after.value != "(":
                return True
        return False

    def _call(self, name: str) -> Node:
        arguments = tuple(map(_numeric, self._enclosed("(", ")")))
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
            return _DOTS
        if opening == "emptyset":
            self._at += 1
            return Braces(())
        if opening == "{":
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
        return builder or _bracket_node(opening, closing.value, items)

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
        node = _apply(name, base, self._function_arguments())
        self._depth -= 1
        return node if exponent is None else Pow(node, _numeric(exponent))

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
            arguments = list(map(_numeric, self._enclosed(self._next.value, closing)))
            if closing == "}":
                self._group_ends.add(self._at - 1)
            return arguments
        if self._is("set{"):
            return list(map(_numeric, self._bracketed().items))
        if self._next.kind == "fn":
            return [self._function()]
        if self._is("-"):
            self._at += 1
            return [Mul((MINUS_ONE, _numeric(self._postfix())))]
        node = _numeric(self._postfix())
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
            top = _numeric(self._digit_argument())
            node = quotient(top, _numeric(self._digit_argument()))
        elif name == "binom":
            top = _numeric(self._digit_argument())
            node = Fn("binom", (top, _numeric(self._digit_argument())))
        elif name == "sqrt":
            node = self._root()
        elif name == "overline" and self._digits_in_base():
            digits = self._tokens[self._at - 3].value
            node = _based(digits, self._index())
        elif name in ("overline", "bar", "vec", "hat", "tilde", "dot", "ddot"):
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
            degree = _numeric(self._expression())
            self._expect("]")
        return Pow(_numeric(self._argument()), Pow(degree, MINUS_ONE))

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
                if name in _ALIGNED or any(map(_is_relation, near)):
                    continue
            if depth == 0 and _is_relation(token) and kept:
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
                upper = _numeric(self._argument())
        if name == "int":
            return self._integral(lower, upper)
        relation = "to" if name == "lim" else "="
        if not isinstance(lower, Rel) or lower.op != relation:
            raise Unparsable(f"has a \\{name} without an index")
        index, start = lower.left, _numeric(lower.right)
        # An index may take the name of a constant.
        letter = index if index in (IMAGINARY, EULER) else None
        if letter is not None:
            index = Sym(index.name)
        if not isinstance(index, Sym):
            raise Unparsable(f"has a \\{name} without an index")
        body = _numeric(self._product())
        if letter is not None:
            body = substitute(body, {letter: index})
        if name == "lim":
            return Big("lim", index, start, ZERO, body)
        if upper is None:
            raise Unparsable(f"has a \\{name} without an upper bound")
        return Big(name, index, start, upper, body)

    def _integral(self, lower: Node | None, upper: Node | None) -> Node:
        if lower is None or upper is None:
            raise Unparsable("has an integral without bounds")
        for end in range(self._at, len(self._tokens) - 1):
            mark, variable = self._tokens[end : end + 2]
            if mark.value == "d" and mark.kind == variable.kind == "sym":
                break
        else:
            raise Unparsable("has an integral without a variable")
        inner = Parser([*self._tokens[self._at : end], Token("end", "", False)])
        inner._depth = self._depth
        body = inner._expression() if end > self._at else ONE
        if inner._next.kind != "end":
            raise Unparsable("has an integral that does not end")
        self._at = end + 2
        return Big("int", Sym(variable.value), _numeric(lower), upper, _numeric(body))


def _word(text: str) -> Node:
    text = _CHOSEN.sub("", plain_text(text))
    if len(text) == 1 and text.isalpha():
        return Sym(text)
    words = text.casefold().split()
    while (phrase := _said(words)) is None:
        if words[0] not in _BEFORE_WORDS or len(words[-1]) < 2 or len(words) < 2:
            return Word(" ".join(words))
        del words[0]
    return phrase


def _said(words: Sequence[str]) -> Node | None:
    """What a phrase means that is more than its words."""
    return _PHRASES.get(" ".join(" ".join(words).replace("-", " ").split()))


def _joined(groups: list[list[Node]], word: str) -> Node:
    """One node for all groups; joint solutions stay together."""
    if not groups:
        raise Unparsable("says nothing but conditions")
    joint = [len(group) > 1 and all(map(_assigns, group)) for group in groups]
    if len(groups) > 1 and all(joint):
        return Several(tuple(Assignment(tuple(group)) for group in groups), word)
    nodes = tuple(node for group in groups for node in group)
    if len(nodes) == 1:
        return nodes[0]
    return _compound(nodes) or Several(nodes, word)


def _compound(nodes) -> Quantity | None:
    """5 feet and 3 inches: one quantity in falling units of one dimension."""
    if not all(isinstance(n, Quantity) and isinstance(n.unit, str) for n in nodes):
        return None
    scales = [node.scale for node in nodes]
    if len({node.unit for node in nodes}) > 1 or len(set(scales)) < len(scales):
        return None
    if scales != sorted(scales, reverse=True):
        return None
    terms = tuple(Mul((_numeric(n.value), Num(n.scale / scales[-1]))) for n in nodes)
    return Quantity(Add(terms), nodes[-1].unit, scales[-1])


def _uncalculated(label: str) -> str:
    if calculates(label):
        raise Unparsable("has a label that calculates")
    return label


def _is_relation(token: Token) -> bool:
    return token.kind == "op" and token.value in _RELATIONS


def _first_bracket(label: list[Token]) -> int:
    found = (i for i, token in enumerate(label) if token.value in ("(", "["))
    return next(found, len(label))


def _is_opaque(label: list[Token]) -> bool:
    """Whether tokens before "=" name a value in a way that the grammar cannot read."""
    first, last = label[0], label[-1]
    if first.kind == "fn":
        return len(label) == 1
    if first.kind == "text":
        said = [word for t in label if t.kind == "text" for word in t.value.split()]
        denied = not _DENIALS.isdisjoint(word.casefold() for word in said)
        values = any(any(map(str.isdigit, word)) for word in said)
        open_number = any(t.kind == "num" for t in label[: _first_bracket(label)])
        return len(label) > 1 and not (denied or values or open_number)
    values = [token.value for token in label if token.kind == "op"]
    if first.value == last.value == "|" and len(label) > 2:
        return not _SET_SIGNS.isdisjoint(values[1:-1])
    opening = _first_bracket(label)
    if opening == len(label) or last.value not in (")", "]"):
        return False
    head, inside = label[:opening], label[opening + 1 : -1]
    if not head or any(token.value in (")", "]") for token in inside[:-1]):
        return False
    if first.kind == "cmd":
        return first.value == "mathbb"
    if first.kind != "sym" or any(t.kind not in ("sym", "num", "op") for t in head[1:]):
        return False
    if any(t.kind == "op" and t.value not in ("_", "{", "}", "'") for t in head):
        return False
    names = [token.value for token in inside if token.kind == "sym"]
    return (
        label[opening].value == "["
        or any(t.kind == "text" for t in inside)
        or any(_is_relation(t) for t in inside)
        or not _SET_SIGNS.isdisjoint(t.value for t in inside if t.kind == "op")
        or first.value.isupper()
        and any(name.isupper() for name in names)
    )


def _is_membership(node: Node) -> bool:
    """`k \\in \\mathbb{Z}`: a condition, and never an answer beside others."""
    return isinstance(node, Rel) and node.op == "in" and isinstance(node.right, Numbers)


def _is_in_reals(node: Node) -> bool:
    """`C \\in \\mathbb{R}`, which goes without saying."""
    return isinstance(node, Rel) and node.op == "in" and node.right == REALS


def _memberships(nodes: Sequence[Node]) -> list[Node]:
    """Of `m, n \\in \\mathbb{Z}`: of its last name, and of those before it."""
    *names, last = nodes
    found = [last]
    while names and isinstance(names[-1], Sym):
        found.append(Rel("in", names.pop(), last.right))
    return found


def _says_a_value(condition: Node) -> bool:
    """Whether it is no condition but a second value: "3 with x = 4"."""
    return any(step.op in ("=", "approx") for step in steps_of(condition))


def _ranges_over(node: Node, name: str, whole: frozenset[str]) -> bool:
    """Whether an answer is a set of reals, and a name stands for any of them.

    Args:
      node: the answer, or a part of it.
      name: the name, "" for whatever the answer is about.
      whole: the names of the whole answer: what it has inside is its parameter.
    """
    match node:
        case Rel(op, left, right) if op in _ORDERS:
            alone = {side.name for side in (left, right) if isinstance(side, Sym)}
            return not name or name in (alone or symbols(node))
        case Chain(steps) if all(step.op in _ORDERS for step in steps):
            return not name or any(name in symbols(s.left) for s in steps[1:])
        case Rel("in" | "notin", left, _):
            return not name or name in symbols(left)
        case Interval() | Tuple((_, _)):
            return name not in whole
        case Several() | Braces() | SetOp():
            parts = [p for p in children(node) if not isinstance(p, Tuple)]
            return any(_ranges_over(part, name, whole) for part in parts)
    return False


def _assigns(node: Node) -> bool:
    return isinstance(node, Rel) and node.op == "=" and is_label(node.left)


def _is_proper(node: Node) -> bool:
    """Whether a written quotient is a fraction of whole numbers between 0 and 1."""
    if not isinstance(node, Mul) or len(node.factors) != 2:
        return False
    top, bottom = node.factors
    return (
        is_integer(top)
        and isinstance(bottom, Pow)
        and is_integer(bottom.base)
        and 0 < top.value < bottom.base.value
    )


def _with_half(node: Node, half: str | None) -> Clock | None:
    """A time with "a.m." or "p.m." or "o'clock" behind it."""
    if isinstance(node, Clock):
        return Clock(node.minutes, half or node.half)
    parts = node.parts if isinstance(node, Ratio) else (node, ZERO)
    if len(parts) != 2 or not all(map(is_integer, parts)):
        return None
    return time_of_day(int(parts[0].value), int(parts[1].value), half)


def _based(digits: str, index: str) -> Node:
    """A number in a base: 101 with the index 2, two, or "base 2"."""
    word = index.lower().replace("base", "").strip(" ()~")
    base = _COUNTING.index(word) if word in _COUNTING else word
    whole, _, places = digits.partition(".")
    if not str(base).isdigit() or not (whole + places).isdigit():
        raise Unparsable("has a number with an index that is no base")
    if not 2 <= int(base) <= 36 or max(map(int, whole + places)) >= int(base):
        raise Unparsable(f"is no number in base {str(base)[:10]}")
    places = "." + places.rstrip("0") if places.strip("0") else ""
    return Based((whole.lstrip("0") or "0") + places, int(base))


def _name_of(node: Node) -> str:
    if isinstance(node, Sym | Const):
        return node.name
    if isinstance(node, Mul):
        if all(isinstance(part, Sym | Const) for part in node.factors):
            return "".join(part.name for part in node.factors)
    if isinstance(node, Num):
        return str(node.value)
    raise Unparsable("has a mark over what is no name")


def _apply(name: str, base: Node | None, arguments: list[Node]) -> Node:
    if name in ("max", "min", "gcd", "lcm"):
        return Fn(name, tuple(arguments))
    argument = _only(arguments)
    if name == "exp":
        return Pow(EULER, argument)
    if name == "cis":
        sine = Mul((IMAGINARY, Fn("sin", (argument,))))
        return Add((Fn("cos", (argument,)), sine))
    if name in ("log", "ln", "lg"):
        logarithm = Fn("log", (argument,))
        if name == "lg":
            base = number(10)
        if base is None or base == EULER:
            return logarithm
        return quotient(logarithm, Fn("log", (_numeric(base),)))
    if name in ("sqrt", "cbrt"):
        return Pow(argument, Num(Fraction(1, 2 if name == "sqrt" else 3)))
    return Fn("sgn" if name == "sign" else name, (argument,))


def _decimal(text: str) -> Num:
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > _MAX_EXPONENT:
        raise Unparsable(f"has an exponent beyond {_MAX_EXPONENT}")
    places = len(mantissa.partition(".")[2])
    ulp = Fraction(1, 10**places) * Fraction(10) ** int(exponent or 0)
    return Num(Fraction(text), ulp if places else None)


def _periodic(text: str, block: str) -> Fraction:
    whole, _, places = text.partition(".")
    scale = 10 ** len(places)
    period = 10 ** len(block) - 1
    value = Fraction(int((whole or "0") + places), scale)
    return value + Fraction(int(block), period * scale)


def _bracket_node(opening: str, closing: str, items: list[Node]) -> Node:
    if opening == "|":
        return _absolute(_only(items))
    if opening in ("floor(", "ceil("):
        return Fn(opening[:-1], (_numeric(_only(items)),))
    if opening == "set{":
        return Braces(tuple(items))
    if not items:
        raise Unparsable("has empty brackets")
    round_brackets = opening == "(" and closing == ")"
    if len(items) == 2 and (
        fold(items[0]) == MINUS_INFINITY or fold(items[1]) == INFINITY
    ):
        round_brackets = False
    if len(items) == 1:
        if (opening == "(") == (closing == ")"):
            return items[0]
    elif len(items) == 2 and not round_brackets:
        low, high = items
        return Interval(
            low,
            high,
            opening == "[" and fold(low) != MINUS_INFINITY,
            closing == "]" and fold(high) != INFINITY,
        )
    elif round_brackets or opening == "[" and closing == "]":
        return Tuple(tuple(items))
    raise Unparsable("has brackets that do not match")


def _absolute(inside: Node) -> Node:
    """|x|, or the determinant of a matrix between bars."""
    if isinstance(inside, Matrix):
        return Matrix(inside.width, inside.cells, True)
    return Fn("abs", (_numeric(inside),))
