"""From text to an answer: what stands around and between expressions.

Beside expressions an answer may be one of these nodes (children are nodes again):

  ("list", a, b, ...)    answers in any order        ("set", a, ...)   a set in braces
  ("tuple", a, b, ...)   ordered; of two, perhaps an open interval
  ("interval", low, high, low_closed, high_closed)
  ("cup", a, b)  ("cap", a, b)  ("minus", a, b)   ("numbers", "Z")
  ("rel", "=" or "<" ..., a, b)                    ("chain", rel, rel, ...)
  ("unit", a, unit, scale)                         ("ratio", a, b, ...)
  ("matrix", width, a, ...)                        ("det", width, a, ...)
  ("based", digits, base)                          ("cases", row, ...)  ("row", a, ...)
  ("assign", rel, rel, ...)   one of several joint solutions "p = 5, q = 2"
  ("word", text)                                   ("choice", letter, a)
"""

import dataclasses
import re

from rl.verifier import tree
from rl.verifier.expressions import _RELATIONS, ExpressionParser
from rl.verifier.normalise import MAX_ANSWER, clean, plain_text, squeezed
from rl.verifier.tokens import Token, tokenize
from rl.verifier.tree import Node, Unparsable
from rl.verifier.units import parse_unit

_SEPARATORS = frozenset([",", ";", "and", "or", "row", "&"])
_STRONG = frozenset([";", "or", "and", "row"])
_INTRODUCING = frozenset(
    "the final answer is are equals equal to approximately about exactly so thus hence"
    " therefore value we get have it solution solutions only".split()
)
_CONDITION = re.compile(r"(?:for|where|with)\b")
_WHEN = re.compile(r"(?:for|if|when|where|as|otherwise|else)\b")
# "5 m" is five metres or five times m; a letter set apart may be either.
_NUMBER_AND_UNIT = re.compile(
    r"(-?\d{1,9}(?:,\d{3})*(?:\.\d{1,9})?) ([a-zA-Z][a-zA-Z/^0-9 ]{0,30})"
)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}")
_CHOICE = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*\(?([A-Z])(?:\)\s*\}?|[.:]\s)"
    r"[.:]?(?:\\[\s,;]|~|\\q?quad|\s)*\}?(.+)",
    re.DOTALL,
)
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
_LABEL_PREFIXES = frozenset({"Delta", "angle", "triangle"})
_PERCENT_WORDS = frozenset("percent pct percentage percents".split())
_ORDINALS = frozenset("th st nd rd".split())


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was understood.

    Attributes:
      text: its words without dress, for comparison where no structure is known.
      node: what it means, or None where the grammar does not know it.
      other: a second reading, where the text allows one ("1,234"), or None.
      parameters: names that it declares to be any integer.
      reason: why node is None.
    """

    text: str
    node: Node | None
    other: Node | None = None
    parameters: frozenset[str] = frozenset()
    reason: str = ""


def parse_answer(raw: str) -> Answer:
    """Reads an answer; never raises for any text.

    Args:
      raw: the content of a box, or a gold answer.

    Returns:
      The answer; its node is None where the text exceeds a cap or is not understood.
    """
    if len(raw) > MAX_ANSWER:
        reason = f"is longer than {MAX_ANSWER} characters"
        return Answer(raw.strip(), None, reason=reason)
    text = clean(raw)
    words = squeezed(text)
    if not words:
        return Answer(words, None, reason="is empty")
    try:
        parser = _read(text, group_commas=True)
        node = parser.result
    except (Unparsable, RecursionError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, Unparsable) else type(error).__name__
        return Answer(words, None, reason=reason)
    other = None
    if match := _NUMBER_AND_UNIT.fullmatch(text):
        reading = parse_unit(match[2])
        if reading is not None and isinstance(reading.unit, str):
            value = _read(match[1], group_commas=True).result
            other = ("unit", value, reading.unit, reading.scale)
    elif (
        "," in text
        and ",0" not in text
        and node[0] not in ("word", "tuple", "interval")
    ):
        other = _second_reading(text, node)
    return Answer(words, node, other, frozenset(parser.parameters))


def _second_reading(text: str, node: Node) -> Node | None:
    """The list that "1,234" may also be."""
    try:
        other = _read(text, group_commas=False).result
    except (Unparsable, RecursionError, ValueError, OverflowError):
        return None
    return other if other != node else None


def _read(text: str, group_commas: bool) -> "_AnswerParser":
    if match := _CHOICE.fullmatch(text):
        letter, rest = match.groups()
        rest = rest.strip()
        if rest.endswith("}") and rest.count("}") > rest.count("{"):
            rest = rest[:-1].strip()
        if rest and rest[0] not in "+-*/^=<>_,'!)}]\\" or rest.startswith("\\frac"):
            parser = _AnswerParser(tokenize(rest, group_commas=group_commas))
            parser.result = ("choice", letter, parser.answer())
            return parser
    parser = _AnswerParser(tokenize(text, group_commas=group_commas))
    if _DATE.fullmatch(text):
        parser.result = ("word", text)
    else:
        parser.result = parser.answer()
    return parser


class _AnswerParser(ExpressionParser):
    """Lists of statements; a statement is a relation between quantities."""

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
        return steps[0] if len(steps) == 1 else ("chain", *steps)

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

    def _quantity(self) -> Node:
        outer, self.currency = self.currency, None
        node = self.expression()
        if self._is(":") and not self._bar_closes:
            node = self._ratio(node)
        node = self._measured(node)
        self.currency = outer
        return node

    def _ratio(self, first: Node) -> Node:
        """3 : 5 : 7; but "C: 5" is a label and its value."""
        label = first[0] == "sym" and first[1].isupper() and len(first[1]) == 1
        if label and self._peek().kind != "sym":
            self._at += 1
            return ("rel", "=", first, self._quantity())
        parts = [first]
        while self._accept(":"):
            parts.append(self.expression())
        if not all(map(tree.is_expression, parts)):
            raise Unparsable("has a ratio of what are no numbers")
        return ("ratio", *parts)

    def _measured(self, node: Node) -> Node:
        words = self._unit_text()
        if self.currency is not None:
            if node[0] not in tree.EXPRESSIONS:
                raise Unparsable("has a currency sign before what is no number")
            if words and words not in _PERCENT_WORDS:
                words = " ".join(w for w in words.split() if w != "per")
                extra = parse_unit(words)
                if extra is None:
                    raise Unparsable(f"has a number beside {words[:40]!r}")
                node = tree.mul(node, tree.number(extra.multiplier))
            words = self.currency
        if not words or words in _ORDINALS:
            return node
        if words.split()[0] in _PERCENT_WORDS and tree.is_expression(node):
            return ("percent", node)
        if node[0] not in tree.EXPRESSIONS and node[0] not in ("ratio", "based"):
            if node[0] in ("tuple", "interval", "set", "cup"):
                return node if parse_unit(words) is not None else _refuse(words)
            return _refuse(words)
        if words.split()[0].startswith("degree"):
            rest = words.partition(" ")[2]
            if rest in ("", "angle"):
                return ("deg", node)
            words = rest
        reading = parse_unit(words)
        if reading is None:
            return _refuse(words)
        if reading.multiplier != 1:
            node = tree.mul(node, tree.number(reading.multiplier))
        if reading.unit is None:
            return node
        return ("unit", node, reading.unit, reading.scale)

    def _unit_text(self) -> str:
        """The words, and their exponents, that follow a number."""
        words: list[str] = []
        while True:
            token, after = self._next, self._peek()
            if token.kind == "text":
                value = token.value.strip(" .~")
                if _CONDITION.match(value.lower()) and not value.lower().startswith(
                    "for each"
                ):
                    break
                words.append(value)
                self._at += 1
            elif words and token.value == "^":
                self._at += 1
                exponent = self._argument()
                if exponent[0] != "num":
                    raise Unparsable("has a unit with an exponent that is no number")
                words.append(f"^ {exponent[1]}")
            elif token.value == "/" and token.kind == "op" and after.kind == "text":
                words.append("/")
                self._at += 1
            elif words and token.value in ("/", "*") and after.kind == "sym":
                words += [token.value, after.value]
                self._at += 2
            elif words and token.kind == "op" and token.value in (".", "-", "'"):
                self._at += 1
            elif words and token.kind == "sym" and token.spaced:
                words.append(token.value)
                self._at += 1
            elif not words and token.kind == "sym" and token.value in ("C", "F"):
                words.append(token.value)
                self._at += 1
            else:
                return " ".join(words).lower()
        return " ".join(words).lower()

    def _ends_in_condition(self) -> bool:
        """ "... for some integer t" declares t and ends the answer."""
        if self._next.kind != "text":
            return False
        words = [t.value.lower() for t in self._tokens[self._at :]]
        sentence = " ".join(words)
        if not _CONDITION.match(sentence) or "not" in sentence.split():
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


def _refuse(words: str) -> Node:
    raise Unparsable(f"has a value beside {words[:40]!r}")


def _word(text: str) -> Node:
    text = plain_text(text).casefold()
    if text in _PHRASES:
        return _PHRASES[text]
    if text in _NUMBER_WORDS:
        return tree.number(_NUMBER_WORDS[text])
    return ("word", text)


def is_label(node: Node) -> bool:
    """Whether a node names a quantity: x, f(x), |AB|, cos A, Delta p; not x + y."""
    match node[0]:
        case "sym":
            return True
        case "call":
            return True
        case "fn":
            return is_label(node[2]) if len(node) == 3 else False
        case "mul":
            names = [p[1] if p[0] == "sym" else "" for p in node[1:]]
            if names[0] in _LABEL_PREFIXES:
                names = names[1:]
                return len(names) == 1 or all(name[:1].isupper() for name in names)
            return all(name[:1].isupper() for name in names)
    return False


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
