"""Parses whole answers: statements joined by commas and words, and their conditions.

The grammar, from loose to tight binding:
* An answer consists of statements.
* A statement consists of quantities joined by relation signs.
* A quantity is an expression and its unit (`quantities`).
* An expression has sums, products, signs and powers (`expressions`).
* Operands are numbers, names and brackets (`operands`); brackets hold statements.
"""

import itertools
import operator
import re
from collections.abc import Sequence

from . import tree as t
from .normalize import plain_text
from .operands import CLOSING, OPENING
from .quantities import BEGINNING, CONDITION, Quantities
from .relations import is_label, is_membership, steps_of
from .tokens import RELATIONS, Token, is_relation
from .units import calculates
from .words import PHRASES

SEPARATORS = {",": ",", ";": ",", "row": ",", "&": ",", "and": "and", "or": "or"}
_AFTER_LABELS = RELATIONS | {",", ";", "and", "or", "row", "&"}
_NOT_IN_LABELS = frozenset(["+", "-", "*", "/", "±", "cup", "minus"])
_ROUND = {"[": "(", "]": ")"}
# Kinds of tokens, other than "text", that may begin a label, and what must follow.
_OPENING_LABELS = {"sym": ("(", "["), "fn": ("=", "approx")}
# Labels with one of these words calculate or deny the value.
_DOUBTING = frozenset(
    "not no never neither nor except without unless wrong false log ln minus plus"
    " nobody none nothing everything anything whether but unknown maybe perhaps"
    " hardly".split()
)
_DENIALS = _DOUBTING | set("if least most less more greater fewer than about".split())
_SET_SIGNS = frozenset(["|", "cap", "cup", "minus", "'", "set{"])
_SAYING = re.compile(
    rf"(?!(?:{BEGINNING})\b)(.*\w) (?:is|are|was|were|equals|has|have)", re.IGNORECASE
)
_ARTICLES = frozenset(["a", "an", "the"])
_IN_WORDS = frozenset([*SEPARATORS, *"- ' ( ) . / { } in ? \" !".split()])
# A condition of these words and names only declares the names: k an integer.
_DECLARING = frozenset(
    "for where with if when all any arbitrary each every a an the is are be being"
    " any constant constants of integration real reals integer integers number numbers"
    " parameter variable and or in".split()
)
_QUANTIFYING = frozenset(
    "all any arbitrary each every constant constants real reals integer integers number"
    " numbers parameter variable".split()
)
# Words that a condition may omit.
_SILENT = frozenset("for where with if when is are be the then".split())
_LIMITS = frozenset("< > <= >= !=".split())
_ORDERS = _LIMITS | {"in", "notin"}


class Parser(Quantities):
    # --- whole answers

    def answer(self) -> t.Node:
        if "text" in map(operator.itemgetter(0), self._tokens):
            if (phrase := self._only_words()) is not None:
                return phrase
        if self._is_any(("=", "approx", "equiv", "to")):
            self._at += 1
        rows: list[t.When] = []
        while True:
            node = self._list()
            if self._next.kind == "end" and not rows:
                return node
            rows.append(t.When(node, self._condition()))
            while self._is_any(SEPARATORS):
                self._at += 1
            if self._next.kind == "end":
                break
        match rows:
            case [t.When(value, condition)] if condition in (t.REALS, _DECLARED):
                return value if condition == t.REALS else _declared(value)
        return t.Cases(tuple(rows))

    def _list(self) -> t.Node:
        nodes: list[t.Node] = []
        joined = ","
        while True:
            nodes.append(self._statement())
            if self._next.kind == "end" or self._at_condition():
                break
            if not self._is_any(SEPARATORS):
                raise t.Unparsable(f"has an unexpected {self._next.value[:20]!r}")
            word = joined
            while self._is_any(SEPARATORS):
                if SEPARATORS[self._next.value] != ",":
                    word = self._next.value
                self._at += 1
            if self._next.kind == "end" or self._at_condition():
                break
            joined = word  # a word after the last statement is ignored
        if len(nodes) == 1:
            return _joined(nodes, joined)
        if joined == "," and (restricted := _restricted(nodes)) is not None:
            return restricted
        rest = [node for node in nodes if not is_membership(node)]
        if rest and len(rest) < len(nodes):
            return _declared(_joined(rest, joined))
        return _joined([n for n in nodes if not _is_in_reals(n)] or nodes, joined)

    def _at_condition(self) -> bool:
        token, after = self._next, self._peek()
        if token.kind == "op" and token.value == "(":
            rest = self._tokens[self._at :]
            inside = itertools.takewhile(lambda x: x.value != ")", rest)
            if any(x.kind == "op" and x.value in _ORDERS | {"="} for x in inside):
                return True
            token = after
        return _is_condition(token)

    def _condition(self) -> t.Node:
        """Parses a condition, up to the next value that has a condition."""
        start, at, level = self._at, self._at + 1, 0
        while self._tokens[at].kind != "end":
            token = self._tokens[at]
            if token.kind == "op":
                level += (token.value in OPENING) - (token.value in CLOSING)
                if token.value in SEPARATORS and level <= 0:
                    rest = self._tokens[at + 1 :]
                    if not _is_condition(rest[0]) and any(map(_is_condition, rest)):
                        break
            at += 1
        self._at = at
        return self.condition_of(self._tokens[start:at])

    def condition_of(self, tokens: Sequence[Token]) -> t.Node:
        """Parses a condition: REALS if always true, Word("") if it declares names."""
        if tokens[0].value == "(" and tokens[-1].value == ")":
            tokens = tokens[1:-1]
        words = " ".join(token.value.lower() for token in tokens)
        parts = words.replace(",", " ").split()
        body = itertools.dropwhile(
            lambda x: x.kind == "text" and _SILENT.issuperset(x.value.lower().split()),
            tokens,
        )
        try:
            parser = type(self)([*body, Token("end", "", False)])
            stated = parser._items()
            related = all(isinstance(s, t.Rel | t.Chain) for s in stated)
            if parser._next.kind == "end" and related:
                if all(map(_is_in_reals, stated)):
                    return t.REALS  # "x is real" is always implied
                if all(is_membership(s) or _is_in_reals(s) for s in stated):
                    return _DECLARED
                return stated[0] if len(stated) == 1 else t.Braces(tuple(stated))
        except t.Unparsable:
            pass
        known = {x.value.lower() for x in tokens if x.kind in ("sym", "const")}
        known |= _DECLARING | ({"some"} if "constant" in parts else set())
        if known.issuperset(parts) and not _QUANTIFYING.isdisjoint(parts):
            return _DECLARED
        return t.Word(" ".join(part for part in parts if part not in _SILENT))

    def _only_words(self) -> t.Node | None:
        tokens = self._tokens[:-1]
        for token in tokens:
            apart = token.kind == "sym" and (token.spaced or token is tokens[0])
            between = token.kind == "op" and token.value in _IN_WORDS
            if token.kind != "text" and not apart and not between:
                return None
        if len(tokens) > 1 and tokens[0].kind == "sym" and _is_condition(tokens[1]):
            return None  # "A with B" has a condition
        pieces: list[list[str]] = [[]]
        joined = ","
        for token in tokens:
            if token.kind == "op" and token.value in SEPARATORS:
                pieces.append([])
                if SEPARATORS[token.value] != ",":
                    joined = token.value
            elif token.value not in ("{", "}"):
                pieces[-1].append(token.value)
        names = [" ".join(piece) for piece in pieces if piece]
        if len(names) > 1 and all(len(piece) <= 2 for piece in pieces):
            return t.Several(tuple(map(_word, names)), joined)
        return _word(" ".join(x.value for x in tokens if x.value not in ("{", "}")))

    def _items(self) -> list[t.Node]:
        found = [self._statement()]
        while self._is_any(SEPARATORS) and self._next.value != "&":
            self._at += 1
            if not self._is_any(SEPARATORS):
                found.append(self._statement())
        return found

    def _set_builder(self, items: list[t.Node]) -> t.Node:
        self._bar_closes = False
        start = self._at
        rules = [s for s in self._items() if not _is_in_reals(s)]
        said_or = any(token.value == "or" for token in self._tokens[start : self._at])
        pattern = items[0].left if _is_in_reals(items[0]) else items[0]
        # In {x | x = 2k, k in Z}, k is only declared. x in Z is a condition.
        rules = [s for s in rules if not is_membership(s) or s.left == pattern]
        bound = pattern.names if isinstance(pattern, t.Sym) else {""}
        real = [isinstance(s, t.Rel | t.Chain) and bound <= s.names for s in rules]
        known = len(items) == 1 and not any(map(is_membership, rules))
        if not (known and real and all(real)):
            raise t.Unparsable("has a set builder that is not {name | real condition}")
        if len(rules) > 1:
            rules = [t.Several(tuple(rules), "or" if said_or else ",")]
        return t.Braces(tuple(rules))

    # --- statements

    def _statement(self) -> t.Node:
        if self._at_lone_atom() and self._peek().value != "=":
            return self._operand()
        self._skip_label_words()
        self._join_label()
        parts, relations = [self._quantity()], []
        while self._is_any(RELATIONS):
            relations.append(self._next.value)
            self._at += 1
            parts.append(self._quantity())
        if not relations:
            return parts[0]
        steps = tuple(map(t.Rel, relations, parts[:-1], parts[1:]))
        if relations == ["equiv"] and isinstance(parts[0], t.Call):
            return t.Rel("=", *parts)  # f(x) is a constant
        return steps[0] if len(steps) == 1 else t.Chain(steps)

    def _skip_label_words(self) -> None:
        """Joins words before "=", ":" or a verb into one name: Area = 5, Area is 5."""
        end = self._at
        while self._tokens[end].kind == "text":
            end += 1
        if end == self._at:
            return
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
        """Joins the tokens of a label that is not a formula into one name: P(X = 2)."""
        kind = self._next.kind
        if kind != "text" and self._peek().value not in _OPENING_LABELS.get(kind, ()):
            return
        start, level = self._at, 0
        for end in range(start, len(self._tokens)):
            token = self._tokens[end]
            if token.kind == "end":
                return
            if token.kind == "op":
                level += (token.value in OPENING) - (token.value in CLOSING)
                if level < 0 or level == 0 and token.value in _AFTER_LABELS:
                    break
                if level == 0 and token.value in _NOT_IN_LABELS:
                    return
        if token.value not in ("=", "approx") or end == start:
            return
        label = self._tokens[start:end]
        if not _is_opaque(label):
            return
        _uncalculated(" ".join(token.value for token in label if token.kind == "text"))
        name = " ".join(_ROUND.get(part.value, part.value) for part in label)
        self._tokens[start:end] = [Token("sym", name, label[0].spaced)]


_DECLARED = t.Word("")
"""Condition that only declares a name: k an integer."""


def _is_condition(token: Token) -> bool:
    return token.kind == "text" and CONDITION.match(token.value.lower()) is not None


def _declared(value: t.Node) -> t.Node:
    """Returns a value whose condition only declares names, such as k an integer.

    Raises `Unparsable` for inequalities, and for sets of numbers without names such as
    (0, 4), because the condition may limit them.
    """
    parts = value.items if isinstance(value, t.Several | t.Braces) else (value,)
    for part in parts:
        relation = isinstance(part, t.Rel) and part.op in _ORDERS
        numbers = isinstance(part, t.Interval | t.Tuple | t.SetOp) and not part.names
        if relation or numbers or isinstance(part, t.Chain):
            raise t.Unparsable("has a condition that may limit its values")
    return value


def _restricted(nodes: list[t.Node]) -> t.Node | None:
    """Joins a value and inequalities to a value with a condition: x + 1, x > 0."""
    relations = [node for node in nodes if isinstance(node, t.Rel | t.Chain)]
    limits = [r for r in relations if all(s.op in _LIMITS for s in steps_of(r))]
    values = [node for node in nodes if node not in limits]
    match values:
        case [t.Expression() as given] | [t.Rel("=", t.Sym() | t.Call(), given)]:
            if limits and all(r.names and r.names <= given.names for r in limits):
                condition = limits[0] if len(limits) == 1 else t.Braces(tuple(limits))
                return t.Cases((t.When(values[0], condition),))
    return None


def _is_in_reals(node: t.Node) -> bool:
    return isinstance(node, t.Rel) and node.op == "in" and node.right == t.REALS


def _word(text: str) -> t.Node:
    text = plain_text(text)
    if len(text) == 1 and text.isalpha():
        return t.Sym(text)
    words = text.casefold().split()
    while True:
        phrase = " ".join(" ".join(words).replace("-", " ").split())
        if phrase in PHRASES:
            return PHRASES[phrase]
        if words[0] not in _ARTICLES or len(words[-1]) < 2 or len(words) < 2:
            return t.Word(" ".join(words))
        del words[0]


def _joined(nodes: list[t.Node], word: str) -> t.Node:
    match nodes:
        case [t.Rel("!=", label, value), *others] if is_label(label):
            # x != 2, 5: all reals except 2 and 5
            values = [value, *others]
            if all(isinstance(v, t.Expression) and not v.names for v in values):
                signs = t.ONE, t.MINUS_ONE
                each = (t.substitute(v, {t.Sign(): s}) for v in values for s in signs)
                apart = dict.fromkeys(each)
                if len(apart) > 1:
                    rest = t.SetOp("minus", t.REALS, t.Braces(tuple(apart)))
                    return t.Rel("in", label, rest)
    return nodes[0] if len(nodes) == 1 else t.Several(tuple(nodes), word)


def _uncalculated(label: str) -> str:
    if calculates(label) or not _DOUBTING.isdisjoint(label.casefold().split()):
        what = "has a label with an operation, denial or doubt"
        raise t.Unparsable(f"{what}: {label[:40]!r}")
    return label


def _is_opaque(label: list[Token]) -> bool:
    """Returns whether tokens before "=" are a name that the grammar cannot parse."""
    first, last = label[0], label[-1]
    if first.kind == "fn":
        return len(label) == 1
    openings = [i for i, token in enumerate(label) if token.value in ("(", "[")]
    opening = openings[0] if openings else len(label)
    if first.kind == "text":
        said = " ".join(token.value for token in label if token.kind == "text")
        denied = not _DENIALS.isdisjoint(said.casefold().split())
        values = any(map(str.isdigit, said))
        open_number = any(token.kind == "num" for token in label[:opening])
        return len(label) > 1 and not (denied or values or open_number)
    if first.kind != "sym" or opening != 1 or last.value not in (")", "]"):
        return False
    inside = label[2:-1]
    if any(token.value in (")", "]") for token in inside):
        return False
    return label[1].value == "[" or any(
        x.kind == "text" or is_relation(x) or x.kind == "op" and x.value in _SET_SIGNS
        for x in inside
    )
