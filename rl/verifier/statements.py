"""Statements and lists of them: relations, words, conditions, alternatives."""

import re

from rl.verifier import tree
from rl.verifier.normalise import plain_text
from rl.verifier.quantities import CONDITION, QuantityParser
from rl.verifier.relations import is_label
from rl.verifier.tokens import Token
from rl.verifier.tree import Node, Unparsable

_RELATIONS = frozenset("= < > <= >= != approx in equiv to".split())
_SEPARATORS = frozenset([",", ";", "and", "or", "row", "&"])
_STRONG = frozenset([";", "or", "and", "row"])
_INTRODUCING = frozenset(
    "the final answer is are equals equal to approximately about exactly so thus hence"
    " therefore value we get have it solution solutions only".split()
)
_WHEN = re.compile(r"(?:for|if|when|where|as|otherwise|else)\b")
_COUNTING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen"
    " fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
)
_NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING)}
_REALS = ("interval", tree.negative(tree.INFINITY), tree.INFINITY, False, False)
_PHRASES = {
    "all real numbers": _REALS, "all reals": _REALS, "all real": _REALS,
    "no solution": ("set",), "no solutions": ("set",), "empty set": ("set",),
    "no real solutions": ("set",), "no real solution": ("set",),
}  # fmt: skip


class AnswerParser(QuantityParser):
    """Reads a whole answer."""

    result: Node

    def __init__(self, tokens: list[Token]):
        super().__init__(tokens)
        self.parameters: set[str] = set()

    def answer(self) -> Node:
        """The whole text."""
        if (phrase := self._only_words()) is not None:
            return phrase
        self._skip_introduction()
        if self._is("=") or self._is("approx"):
            self._at += 1
        groups: list[list[Node]] = [[]]
        while True:
            node = self.statement()
            if not self._is_condition(node):
                groups[-1].append(node)
            if self._is("(") and self._drops_condition():
                continue
            if self._next.kind == "end" or self._ends_in_condition():
                break
            strong = self._separator()
            if self._next.kind == "end":
                break
            if strong:
                groups.append([])
        return _joined([group for group in groups if group])

    def _drops_condition(self) -> bool:
        """Consumes "(x > 0)" after an answer; stays before another tuple."""
        start = self._at
        node = self._operand()
        if node[0] in ("rel", "chain"):
            self._is_condition(node)
            return self._next.kind != "end"
        self._at = start
        return node[0] in ("tuple", "interval")

    def _separator(self) -> bool:
        """Consumes separators; whether one of them was stronger than a comma."""
        if not self._at_separator():
            raise Unparsable(f"has {self._next.value[:20]!r} out of place")
        strong = False
        while self._at_separator():
            strong |= self._next.value in _STRONG
            self._at += 1
        return strong

    def _at_separator(self) -> bool:
        return self._next.kind == "op" and self._next.value in _SEPARATORS

    def _only_words(self) -> Node | None:
        tokens = self._tokens[:-1]
        if not any(token.kind == "text" for token in tokens):
            return None
        for token in tokens:
            if token.kind == "num" or token.kind not in ("text", "sym", "const", "op"):
                return None
            if token.kind == "op" and token.value not in (
                ",", ";", "and", "or", "-", "'", "(", ")", ".", "/", "{", "}", "in",
                "?", '"', "!", "&",
            ):  # fmt: skip
                return None
            if token.kind != "text" and token.kind != "op" and not token.spaced:
                if len(tokens) > 1 and token is not tokens[0]:
                    return None
        pieces: list[list[str]] = [[]]
        for token in tokens:
            if token.kind == "op" and token.value in (",", ";", "and", "or", "&"):
                pieces.append([])
            elif token.value not in ("{", "}"):
                pieces[-1].append(token.value)
        names = [" ".join(piece) for piece in pieces if piece]
        if len(names) > 1 and all(len(piece) <= 2 for piece in pieces):
            return ("list", *(_word(name) for name in names))
        whole = " ".join(t.value for t in tokens if t.value not in ("{", "}"))
        return _word(whole)

    def _skip_introduction(self) -> None:
        start = self._at
        while self._next.kind == "text" and all(
            word in _INTRODUCING
            for word in self._next.value.lower().rstrip(":").split()
        ):
            self._at += 1
            self._accept(":")
        if self._next.kind == "end" or self._at_separator():
            self._at = start

    def items(self) -> list[Node]:
        """Statements up to a closing bracket, separated by commas or joining words."""
        found = [self.statement()]
        while self._at_separator() and self._next.value != "&":
            self._at += 1
            if self._at_separator():
                continue
            if self._next.kind == "op" and self._next.value in (")", "}", "]", "set}"):
                break
            found.append(self.statement())
        return found

    def statement(self) -> Node:
        """Quantities joined by relation signs."""
        self._skip_label_words()
        parts, relations = [self._quantity()], []
        while self._next.kind == "op" and self._next.value in _RELATIONS:
            relations.append(self._next.value)
            self._at += 1
            if relations[-1] in "<>" and self._accept("="):
                relations[-1] += "="
            parts.append(self._quantity())
        if not relations:
            return parts[0]
        steps = [
            ("rel", relation, left, right)
            for relation, left, right in zip(
                relations, parts[:-1], parts[1:], strict=True
            )
        ]
        if relations == ["equiv"] and (modulus := self._modulus()) is not None:
            if not all(map(tree.is_expression, (*parts, modulus))):
                raise Unparsable("has a congruence of what are no numbers")
            return ("mod", steps[0], modulus)
        return steps[0] if len(steps) == 1 else ("chain", *steps)

    def _modulus(self) -> Node | None:
        """What follows a congruence: `\\pmod 5` or `(mod 5)`."""
        if self._next.value == "pmod":
            self._at += 1
            return self._argument()
        if self._is("(") and self._peek().value == "mod":
            self._at += 2
            modulus = self.expression()
            self._expect(")")
            return modulus
        return None

    def _skip_label_words(self) -> None:
        """Before "Area = 5" or "for n = 1": one name, or nothing."""
        if self._next.kind != "text":
            return
        value = self._next.value.strip()
        if _WHEN.match(value.lower()) and self._peek().kind != "end":
            rest = _WHEN.sub("", value.lower()).strip()
            if not rest:
                self._at += 1
                return
        words = []
        end = self._at
        while self._tokens[end].kind == "text":
            words.append(self._tokens[end].value)
            end += 1
        follower = self._tokens[end]
        if follower.kind == "op" and follower.value in (":", "="):
            name = " ".join(words).casefold()
            equals = Token("op", "=", False)
            self._tokens[self._at : end + 1] = [Token("sym", name, False), equals]
        elif words[-1].rstrip().endswith((":", "=")) and len(words) == 1:
            name = words[-1].rstrip(" :=").casefold()
            self._tokens[self._at : end] = [
                Token("sym", name, False),
                Token("op", "=", False),
            ]

    def _ends_in_condition(self) -> bool:
        """ "... for some integer t" declares t and ends the answer."""
        if self._next.kind != "text":
            return False
        words = [t.value.lower() for t in self._tokens[self._at :]]
        sentence = " ".join(words)
        if not CONDITION.match(sentence) or "not" in sentence.split():
            return False
        for token in self._tokens[self._at :]:
            if token.kind == "sym":
                self.parameters.add(token.value)
            elif token.kind == "text":
                self.parameters.update(w for w in token.value.split() if len(w) == 1)
        return True

    def _is_condition(self, node: Node) -> bool:
        """`k \\in \\mathbb{Z}` after an answer declares k."""
        if node[0] == "rel" and node[1] == "in" and node[3][0] == "numbers":
            self.parameters.update(tree.symbols(node[2]))
            return True
        return False


def _word(text: str) -> Node:
    text = plain_text(text).casefold()
    if text in _PHRASES:
        return _PHRASES[text]
    if text in _NUMBER_WORDS:
        return tree.number(_NUMBER_WORDS[text])
    return ("word", text)


def _joined(groups: list[list[Node]]) -> Node:
    """One node for all groups; joint solutions stay together."""
    if not groups:
        raise Unparsable("says nothing but conditions")
    joint = [len(group) > 1 and all(map(_assigns, group)) for group in groups]
    if len(groups) > 1 and all(joint):
        return ("list", *(("assign", *group) for group in groups))
    nodes = [node for group in groups for node in group]
    return nodes[0] if len(nodes) == 1 else ("list", *nodes)


def _assigns(node: Node) -> bool:
    return node[0] == "rel" and node[1] == "=" and is_label(node[2])
