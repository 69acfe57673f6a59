"""Reads whole answers: statements joined by commas and words.

From loose to tight: an answer is statements; a statement is quantities joined by
relation signs; a quantity is an expression and the words that measure it
(`quantities`); an expression is sums, products, signs and powers (`expressions`) of
operands (`operands`). Brackets hold statements again.
"""

import re
from collections.abc import Sequence

from .conditions import (
    DENYING,
    REASON,
    SEPARATORS,
    Conditions,
    is_in_reals,
    memberships,
)
from .expressions import STARTS
from .normalize import plain_text
from .operands import CLOSING, OPENING
from .quantities import BEGINNING, CONDITION, compound
from .relations import assigns, is_label, is_membership
from .tokens import RELATIONS, Token, is_relation
from .tree import (
    MINUS_ONE,
    ONE,
    REALS,
    Assignment,
    Braces,
    Call,
    Chain,
    Expression,
    Interval,
    Node,
    Rel,
    SetOp,
    Several,
    Sign,
    Sym,
    Tuple,
    Unparsable,
    Word,
    contains,
    mul,
    substitute,
    symbols,
)
from .units import calculates
from .words import PHRASES

_AFTER_LABELS = RELATIONS | {",", ";", "and", "or", "row", "&"}
_NOT_IN_LABELS = frozenset(["+", "-", "*", "/", "±", "∓", "cup", "minus"])
_ROUND = {"[": "(", "]": ")"}
# A label with one of these calculates, or says that it is something else.
_DOUBTING = DENYING | set(
    "log ln minus plus nobody none nothing everything anything whether but unknown"
    " maybe perhaps hardly".split()
)
_DENIALS = _DOUBTING | set("if least most less more greater fewer than about".split())
_SET_SIGNS = frozenset(["|", "cap", "cup", "minus", "'", "set{"])
_STRONG = frozenset([";", "or", "and", "row"])
_SAYING = re.compile(
    rf"(?!(?:{BEGINNING})\b)(.*\w) (?:is|are|was|were|equals|has|have)", re.IGNORECASE
)
_ALL_BUT = re.compile(r"all reals?(?: numbers?)? (?:except|but|other than)(?: for)?")
# In the second column of a definition by cases.
_WHEN = re.compile(rf"(?:{BEGINNING}|as|otherwise|else)\b")
_INTRODUCING = frozenset(
    "the final answer is are equals equal to exactly so thus hence therefore value we"
    " get have it solution solutions only there option choice about approximately"
    " roughly at".split()
)
_BEFORE_WORDS = _INTRODUCING | {"a", "an"}
# Before brackets, where they can do nothing but name what stands there.
_NAMING = frozenset("point pair ordered triple vector interval set".split())
_CHOSEN = re.compile(r"(?:[Oo]ption|[Cc]hoice) (?=[A-Z]\Z)")
_IN_WORDS = frozenset([*SEPARATORS, *"- ' ( ) . / { } in ? \" !".split()])


class Parser(Conditions):
    """Reads one answer.

    Args:
      tokens: what `tokenize` returned.
    """

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
            if is_membership(node):
                conditions += memberships([*groups[-1][1:], node])
                while len(groups[-1]) > 1 and isinstance(groups[-1][-1], Sym):
                    groups[-1].pop()
            else:
                groups[-1].append(node)
            if self._is("(") and REASON.match(self._peek().value.lower()):
                self._at += 1
            if self._is("("):
                start, aside = self._at, self._operand()
                if isinstance(aside, Rel | Chain):
                    conditions.append(aside)
                    of_one |= not is_membership(aside)
                elif isinstance(aside, Tuple) and is_membership(aside.items[-1]):
                    conditions += memberships(aside.items)
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
                if all(map(is_membership, said)):
                    conditions += said
                    break
                self._at, self.parameters = start, parameters
            if strong:
                groups.append([])
        if joined != "or" and any(map(len, groups)):
            rest = [[n for n in group if not is_in_reals(n)] for group in groups]
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
            part.right if isinstance(part, Rel) and assigns(part) else part
            for part in self._items()
        ]
        if any(contains(value, Sign) for value in values):
            found = _all_but_values([Rel("!=", Sym("x"), values[0]), *values[1:]])
            if isinstance(found, Rel) and self._next.kind == "end":
                return found.right
        without = Braces(tuple(values))
        if self._next.kind != "end":
            raise Unparsable(f"has {self._next.value[:20]!r} out of place")
        return SetOp("minus", REALS, without)

    def _at_condition(self) -> bool:
        token = self._next
        return token.kind == "text" and CONDITION.match(token.value.lower()) is not None

    def _at_separator(self) -> bool:
        return self._is_any(SEPARATORS)

    def _separator(self) -> tuple[bool, str]:
        """Consumes separators: whether one was stronger than a comma, and the word."""
        if not self._at_separator():
            raise Unparsable(f"has {self._next.value[:20]!r} out of place")
        strong, word = False, ","
        while self._at_separator():
            strong |= self._next.value in _STRONG
            if SEPARATORS[self._next.value] != ",":
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
            if token.kind == "op" and token.value in SEPARATORS:
                pieces.append([])
                if SEPARATORS[token.value] != ",":
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
        known = _INTRODUCING | (_NAMING if behind.value in STARTS else set())
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
        while self._is_any(RELATIONS):
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
            return parts[0]
        steps = tuple(map(Rel, relations, parts[:-1], parts[1:]))
        if relations == ["equiv"]:
            if isinstance(parts[0], Call):
                return Rel("=", *parts)  # f(x) is the same everywhere
        return steps[0] if len(steps) == 1 else Chain(steps)

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
        _uncalculated(" ".join(t.value for t in label if t.kind == "text"))
        name = " ".join(_ROUND.get(part.value, part.value) for part in label)
        self._tokens[start:end] = [Token("sym", name, label[0].spaced)]


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
    return PHRASES.get(" ".join(" ".join(words).replace("-", " ").split()))


def _joined(groups: list[list[Node]], word: str) -> Node:
    """One node for all groups; joint solutions stay together."""
    if not groups:
        raise Unparsable("says nothing but conditions")
    joint = [len(group) > 1 and all(map(assigns, group)) for group in groups]
    if len(groups) > 1 and all(joint):
        return Several(tuple(Assignment(tuple(group)) for group in groups), word)
    nodes = tuple(node for group in groups for node in group)
    if (excluded := _all_but_values(nodes)) is not None:
        return excluded
    if len(nodes) == 1:
        return nodes[0]
    return compound(nodes) or Several(nodes, word)


def _all_but_values(nodes: Sequence[Node]) -> Node | None:
    """Reads x != 2, 5 and x != +-1 as all reals but these."""
    first, *rest = nodes
    if not (isinstance(first, Rel) and first.op == "!=" and is_label(first.left)):
        return None
    values = [first.right, *rest]
    if not all(isinstance(v, Expression) and not symbols(v) for v in values):
        return None
    signed = [v for v in values if contains(v, Sign)]
    if not rest and not signed:
        return None
    apart = [
        substitute(value, {Sign(1): sign, Sign(-1): mul(MINUS_ONE, sign)})
        for value in values
        for sign in ((ONE, MINUS_ONE) if value in signed else (ONE,))
    ]
    return Rel("in", first.left, SetOp("minus", REALS, Braces(tuple(apart))))


def _uncalculated(label: str) -> str:
    if calculates(label) or not _DOUBTING.isdisjoint(label.casefold().split()):
        raise Unparsable("has a label that calculates")
    return label


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
        or any(is_relation(t) for t in inside)
        or not _SET_SIGNS.isdisjoint(t.value for t in inside if t.kind == "op")
        or first.value.isupper()
        and any(name.isupper() for name in names)
    )
