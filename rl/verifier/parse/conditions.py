"""Reads what restricts an answer: conditions and set builders."""

import re
from collections.abc import Sequence

from .build import only
from .quantities import Quantities
from .relations import is_membership, steps_of
from .tree import (
    INTEGERS,
    REALS,
    Braces,
    Chain,
    Interval,
    Node,
    Numbers,
    Rel,
    SetOp,
    Several,
    Sym,
    Tuple,
    Unparsable,
    children,
    symbols,
)
from .words import COUNTING, PARTS, TENS

DENYING = frozenset(
    "not no never neither nor except without unless wrong false".split()
)
_ORDERS = frozenset("< > <= >= !=".split())
SEPARATORS = {",": ",", ";": ",", "row": ",", "&": ",", "and": "and", "or": "or"}
REASON = re.compile(r"\(?(?:since|because)\b")
_VALUE_WORDS = frozenset([*COUNTING, *TENS, *PARTS, "both", "either"])
# Which numbers are meant, in words; of other words nothing is known.
_KIND_WORDS = frozenset(
    "integer integers natural naturals rational rationals irrational prime primes even"
    " odd whole positive negative nonnegative non-negative nonzero non-zero complex"
    " imaginary".split()
)
# Numbers that a name stands for, any of them: the answer holds as it is.
_QUANTIFYING = (_KIND_WORDS - {"odd", "even"}) | set(
    "all any arbitrary each every constant constants real reals number numbers"
    " parameter variable".split()
)
# An answer under one of these is one of several cases.
_RESTRICTING = frozenset("odd even otherwise else parity wins".split())
_HEDGING = frozenset("answer half twice double".split())
_KINDS = {
    "integer": "Z", "natural": "N", "rational": "Q", "positive": "R+",
    "negative": "R-", "positive integer": "Z+", "whole": "N", "complex": "C",
    "nonnegative integer": "N0", "non-negative integer": "N0",
}  # fmt: skip


class Conditions(Quantities):
    """Reads conditions at the cursor."""

    def _conditions_behind(self) -> list[Node]:
        """What "for", "where" or "if" says, to the end of the answer.

        It is no part of the answer where it is words and relations. A value there
        belongs to a second answer: "5 for men, 6 for women".
        """
        words: list[str] = []
        found: list[Node] = []
        is_reason = REASON.match(self._next.value.lower()) is not None
        while self._next.kind != "end" and not is_reason:
            if self._next.kind == "text":
                words += re.findall(r"[\w-]+", self._next.value.lower())
                self._at += 1
            elif self._at_separator() or self._is("."):
                self._at += 1
            elif self._next.kind == "sym" and (
                self._peek().kind in ("text", "end")
                or self._peek().kind == "op"
                and self._peek().value in SEPARATORS
            ):
                found.append(self._symbol())
                if self._at_condition():
                    raise Unparsable("has a value behind its condition")
            else:
                found.append(self._statement())
        if is_reason:
            self._skip_reason()
            return []
        if any(word in _VALUE_WORDS or word[:1].isdigit() for word in words):
            raise Unparsable("has a value behind its condition")
        if not DENYING.isdisjoint(words):
            raise Unparsable("has a condition that is denied")
        if not _RESTRICTING.isdisjoint(words):
            raise Unparsable("holds under a condition in words alone")
        mentioned = {word for word in words if len(word) == 1 and word != "a"}
        conditions: list[Node] = []
        for node in found:
            if isinstance(node, Sym):
                mentioned.add(node.name)
            elif isinstance(node, Rel | Chain):
                conditions.append(node)
            elif symbols(node) or not conditions or conditions[-1].op != "!=":
                raise Unparsable("has a value behind its condition")
        if not (conditions or _QUANTIFYING.intersection(words)):
            raise Unparsable("has a condition that says nothing of what it names")
        if kinds := " ".join(word for word in words if word in _KIND_WORDS):
            kind = Numbers(_KINDS.get(kinds.removesuffix("s"), kinds))
            return [*conditions, *(Rel("in", Sym(n), kind) for n in mentioned or [""])]
        self.parameters |= mentioned
        return conditions

    def _skip_reason(self) -> None:
        """Skips why, which is no part of the answer, unless it has another value."""
        said, reason = self._tokens[: self._at], self._tokens[self._at : -1]
        self._at = len(self._tokens) - 1
        words = " ".join(t.value for t in reason).lower()
        found = set(re.findall(r"[\w-]+", words))
        own, numbers = (
            {t.value for t in tokens if t.kind == "num"} for tokens in (said, reason)
        )
        if (
            numbers
            and not numbers & own
            or found & (_VALUE_WORDS | _HEDGING) - {"zero"}
        ):
            raise Unparsable("has a value behind its reason")

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
            if is_membership(condition):
                names, numbers = symbols(condition.left), condition.right
            elif is_in_reals(condition):
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
            else:
                node = SetOp("cap", node, numbers)
        return node

    def _set_builder(self, items: list[Node]) -> Node:
        """`{x | ...}`: what the right side describes, within what the left one says."""
        self._bar_closes = False
        start = self._at
        stated = self._items()
        pattern, domain = only(items), REALS
        if isinstance(pattern, Rel) and pattern.op == "in":
            pattern, domain = pattern.left, pattern.right
        memberships = [part for part in stated if is_membership(part)]
        rest = [part for part in stated if not is_membership(part)]
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
        raise Unparsable("has a set builder that is no condition on one name")


def is_in_reals(node: Node) -> bool:
    """`C \\in \\mathbb{R}`, which goes without saying."""
    return isinstance(node, Rel) and node.op == "in" and node.right == REALS


def memberships(nodes: Sequence[Node]) -> list[Node]:
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
