"""Whether two answers mean the same, kind by kind.

Every rule takes its two sides in the fixed order of their kinds, and every rule for two
sides of one kind treats them alike: so the relation is symmetric. It is reflexive
because equal trees, and equal words, are equal before any rule is asked.
"""

import itertools

from rl.verifier import tree
from rl.verifier.answers import Answer
from rl.verifier.equality import equal, is_zero, proportional
from rl.verifier.families import same_family, with_one_parameter
from rl.verifier.normalise import plain_text
from rl.verifier.regions import as_region, region_of, same_region
from rl.verifier.relations import (
    ascending,
    is_y_of_x,
    label_of,
    labelled_values,
    relates_names,
    solves,
    value_of,
    without_tuple_label,
    wordy,
)
from rl.verifier.tree import Node
from rl.verifier.units import compatible

_MAX_ITEMS = 200
_MAX_SIGNS = 64
_PLUS_MINUS = frozenset({"pm"})
_ORDER = (
    "choice list assign set cases mod chain rel tuple interval cup cap minus numbers"
    " matrix det ratio unit percent deg based word"
).split()
_RANK = {kind: rank for rank, kind in enumerate(_ORDER)}


def same_answer(left: Answer, right: Answer, decimals: bool = False) -> bool:
    """Whether two parsed answers are equivalent.

    Args:
      left: one answer.
      right: the other one.
      decimals: also accept decimals for the exact numbers that they round.
    """
    if left.text == right.text:
        return True
    if left.node is None or right.node is None:
        return _same_prose(left.text, right.text)
    parameters = left.parameters | right.parameters
    compare = _Comparison(decimals, parameters)
    for a in filter(None, (left.node, left.other)):
        for b in filter(None, (right.node, right.other)):
            if compare.same(*with_one_parameter(a, b, parameters)):
                return True
    return False


def _same_prose(left: str, right: str) -> bool:
    """Text that is no math differs by case and dress at most."""
    left, right = plain_text(left), plain_text(right)
    if any(char in left + right for char in "\\^_=<>"):
        return False
    long = len(left) > 3 and len(right) > 3
    return long and left.casefold() == right.casefold()


class _Comparison:
    """One comparison of two trees.

    Args:
      decimals: whether decimals stand for what they round.
      parameters: names that are declared to be any integer.
      whole: whether it is about whole answers, not about coordinates.
    """

    def __init__(self, decimals: bool, parameters: frozenset[str], *, whole=True):
        self._decimals = decimals
        self._parameters = parameters
        self._whole = whole

    def same(self, a: Node, b: Node) -> bool:
        """Whether two nodes mean the same."""
        if a == b:
            return True
        if tree.is_expression(a) and tree.is_expression(b):
            plain = frozenset({"pm", "percent", "deg"})
            if not (a[0] in plain or b[0] in plain):
                if not (tree.contains(a, _PLUS_MINUS) or tree.contains(b, _PLUS_MINUS)):
                    return equal(a, b, self._decimals) or (
                        self._whole and same_family(a, b, self._parameters)
                    )
        if a[0] in ("choice", "word") or b[0] in ("choice", "word"):
            return self._same_words(*_ordered(a, b))
        if tree.contains(a, _PLUS_MINUS) or tree.contains(b, _PLUS_MINUS):
            return self._same_items(a, b)
        regions = self._same_regions(a, b)
        if regions is not None:
            return regions
        if _is_several(a) or _is_several(b):
            return self._same_items(a, b)
        a, b = _ordered(a, b)
        method = getattr(self, "_" + a[0], None)
        return method(a, b) if method else self._same_parts(a, b)

    # --- words

    def _same_words(self, a: Node, b: Node) -> bool:
        if a[0] == "choice":
            if b[0] == "choice":
                return a[1] == b[1] and self.same(a[2], b[2])
            if b == ("sym", a[1]) or b == ("word", a[1].casefold()):
                return True
            return self.same(a[2], b)
        if b[0] == "word":
            a, b = b, a
        if b[0] == "word" or not tree.is_expression(b):
            return False
        letters = a[1]
        if b[0] == "sym":
            return b[1].casefold() == letters and len(letters) > 1
        if letters.isalpha() and len(letters) <= 4:
            return equal(tree.mul(*(("sym", c) for c in letters)), b)
        return False

    # --- sets of reals

    def _same_regions(self, a: Node, b: Node) -> bool | None:
        """None unless one side is surely a region."""
        if relates_names(a) and relates_names(b):
            return None
        first, second = region_of(a), region_of(b)
        if first is None and second is None:
            return None
        if first is None:
            first = (
                as_region(a) or as_region(value_of(a) or a)
                if (a[0] in ("rel", "chain"))
                else as_region(a)
            )
        if second is None:
            second = (
                as_region(b) or as_region(value_of(b) or b)
                if (b[0] in ("rel", "chain"))
                else as_region(b)
            )
        if first is None or second is None:
            return None
        return same_region(first, second, self._decimals)

    # --- several answers

    def _same_items(self, a: Node, b: Node) -> bool:
        a, b = without_tuple_label(a), without_tuple_label(b)
        for one, other in ((a, b), (b, a)):
            if (
                one[0] in ("list", "set")
                and other[0] == "tuple"
                and not tree.contains(other, _PLUS_MINUS)
            ):
                labelled = labelled_values(one)
                if labelled is not None:
                    return self.same(("tuple", *labelled), other)
                if one[0] == "list":
                    return False
        first, second = self._items(a), self._items(b)
        if a[0] == "set" or b[0] == "set":
            first, second = self._distinct(first), self._distinct(second)
        if len(first) != len(second) or len(first) > _MAX_ITEMS:
            return False
        if len(first) == 1 and not (_is_several(first[0]) or _is_several(second[0])):
            return self.same(first[0], second[0])
        return self._matched(first, second)

    def _items(self, node: Node) -> list[Node]:
        if node[0] in ("rel", "chain"):
            value = value_of(node)
            if value is not None and _is_several(value):
                node = value
        if node[0] in ("list", "set"):
            found = []
            for part in node[1:]:
                if part[0] == "list" and node[0] == "list":
                    found.extend(self._items(part))
                else:
                    found.extend(self._distinct(_plus_minus_values(part)))
            return found
        return self._distinct(_plus_minus_values(node))

    def _distinct(self, nodes: list[Node]) -> list[Node]:
        found: list[Node] = []
        for node in nodes[:_MAX_ITEMS]:
            if not any(self.same(node, other) for other in found):
                found.append(node)
        return found

    def _matched(self, first: list[Node], second: list[Node]) -> bool:
        """Whether the items pair off, whatever their order."""
        rest = list(second)
        unmatched = []
        for item in first:
            if item in rest:
                rest.remove(item)
            else:
                unmatched.append(item)
        pairs = [
            [j for j, other in enumerate(rest) if self.same(item, other)]
            for item in unmatched
        ]
        owner: dict[int, int] = {}

        def assign(i: int, seen: set[int]) -> bool:
            for j in pairs[i]:
                if j not in seen:
                    seen.add(j)
                    if j not in owner or assign(owner[j], seen):
                        owner[j] = i
                        return True
            return False

        return all(assign(i, set()) for i in range(len(unmatched)))

    def _assign(self, a: Node, b: Node) -> bool:
        if b[0] == "assign":
            return len(a) == len(b) and self._matched(list(a[1:]), list(b[1:]))
        labelled = labelled_values(a)
        return labelled is not None and self.same(("tuple", *labelled), b)

    def _cases(self, a: Node, b: Node) -> bool:
        if b[0] == "rel" and (value := value_of(b)) is not None:
            return self.same(a, value)
        if b[0] != "cases" or len(a) != len(b):
            return False
        return self._matched(list(a[1:]), list(b[1:]))

    # --- relations

    def _chain(self, a: Node, b: Node) -> bool:
        value = value_of(a)
        if value is not None:
            return self.same(value, b)
        if b[0] == "rel" and (other := value_of(b)) is not None:
            return self.same(a, other)
        if b[0] != "chain" or len(a) != len(b):
            return False
        a, b = ascending(a), ascending(b)
        return all(
            x[1] == y[1] and self.same(x[2], y[2]) and self.same(x[3], y[3])
            for x, y in zip(a[1:], b[1:], strict=True)
        )

    def _mod(self, a: Node, b: Node) -> bool:
        if b[0] != "mod" or not self.same(a[2], b[2]):
            return False
        (_, _, left, first), (_, _, other, second) = a[1], b[1]
        if not self.same(left, other):
            return False
        steps = tree.divide(tree.add(first, tree.negative(second)), a[2])
        return self.same(first, second) or (
            steps[0] == "num" and steps[1].denominator == 1
        )

    def _rel(self, a: Node, b: Node) -> bool:
        value = value_of(a)
        if b[0] == "rel":
            return self._two_relations(a, b, value, value_of(b))
        if value is not None:
            return self.same(value, b)
        if a[1] == "=" and tree.is_expression(b):
            return solves(b, a)
        return False

    def _two_relations(self, a, b, value_a, value_b) -> bool:
        if value_a is not None and value_b is not None:
            label_a, label_b = label_of(a), label_of(b)
            if label_a == label_b or label_a is None or label_b is None:
                return self.same(value_a, value_b)
            if label_a[0] == label_b[0] == "call" and len(label_a) == len(label_b):
                renamed = dict(zip(label_b[2:], label_a[2:], strict=True))
                if all(name[0] == "sym" for name in renamed):
                    return self.same(value_a, tree.substitute(value_b, renamed))
                return False
            if wordy(label_a) or wordy(label_b) or is_y_of_x(label_a, label_b):
                return self.same(value_a, value_b)
            if label_a[0] == label_b[0] == "tuple":
                return False
        if a[1] != b[1]:
            a, b = ascending(a), ascending(b)
        if a[1] != b[1] or not all(map(tree.is_expression, (*a[2:], *b[2:]))):
            return False
        first = tree.add(a[2], tree.negative(a[3]))
        second = tree.add(b[2], tree.negative(b[3]))
        if not (tree.symbols(first) and tree.symbols(second)):
            return self.same(a[2], b[2]) and self.same(a[3], b[3])
        if a[1] in ("=", "!=", "approx", "equiv"):
            return proportional(first, second)
        a, b = ascending(a), ascending(b)
        first = tree.add(a[2], tree.negative(a[3]))
        second = tree.add(b[2], tree.negative(b[3]))
        return a[1] == b[1] and proportional(first, second, positive=True)

    # --- several coordinates

    def _tuple(self, a: Node, b: Node) -> bool:
        if b[0] == "matrix":
            cells = b[2:]
            if b[1] not in (1, len(cells)):
                return False
            return self._same_parts(a, ("tuple", *cells))
        return self._same_parts(a, b)

    def _same_parts(self, a: Node, b: Node) -> bool:
        """Nodes of one kind whose parts are the same, in order."""
        if a[0] != b[0] or len(a) != len(b) or tree.is_expression(a):
            return False
        # The parameter of a family is one for all coordinates.
        parts = _Comparison(self._decimals, self._parameters, whole=False)
        return all(
            parts.same(x, y)
            if isinstance(x, tuple) and isinstance(y, tuple)
            else x == y
            for x, y in zip(a[1:], b[1:], strict=True)
        )

    # --- measured and marked numbers

    def _ratio(self, a: Node, b: Node) -> bool:
        if b[0] == "ratio":
            if len(a) != len(b):
                return False
            if _is_time(a) and _is_time(b):
                return self._same_parts(a, b)
            return all(
                equal(tree.mul(a[1], y), tree.mul(b[1], x))
                for x, y in zip(a[2:], b[2:], strict=True)
            ) and not (is_zero(a[1]) or is_zero(b[1]))
        if b[0] == "unit":
            return self.same(a, b[1])
        return len(a) == 3 and self.same(tree.divide(a[1], a[2]), b)

    def _unit(self, a: Node, b: Node) -> bool:
        if b[0] != "unit":
            return self.same(a[1], b)
        if not compatible(a[2], b[2]):
            return False
        if a[3] == b[3] or isinstance(a[2], frozenset):
            return self.same(a[1], b[1])
        if not (tree.is_expression(a[1]) and tree.is_expression(b[1])):
            return False
        first = tree.mul(a[1], tree.number(a[3]))
        return self.same(first, tree.mul(b[1], tree.number(b[3])))

    def _percent(self, a: Node, b: Node) -> bool:
        if b[0] == "percent":
            return self.same(a[1], b[1])
        if not tree.is_expression(b):
            return False
        hundredth = tree.divide(a[1], tree.number(100))
        return self.same(a[1], b) or self.same(hundredth, b)

    def _deg(self, a: Node, b: Node) -> bool:
        if b[0] == "deg":
            return self.same(a[1], b[1])
        if not tree.is_expression(b):
            return False
        return self.same(a[1], b) or equal(a, b, self._decimals)

    def _based(self, a: Node, b: Node) -> bool:
        if not tree.is_expression(b):
            return False
        value = tree.number(int(a[1], a[2]))
        return self.same(value, b)


def _plus_minus_values(node: Node) -> list[Node]:
    """All that a node with plus-minus signs stands for."""
    if not tree.contains(node, _PLUS_MINUS):
        return [node]
    if node[0] in ("tuple", "list", "set", "matrix"):
        parts = [
            _plus_minus_values(part) if isinstance(part, tuple) else [part]
            for part in node
        ]
        combined = itertools.islice(itertools.product(*parts), _MAX_SIGNS)
        return [tuple(combination) for combination in combined]
    found = []
    for sign in (1, -1):
        signs = {
            ("pm", 1): tree.number(sign),
            ("pm", -1): tree.number(-sign),
        }
        found.append(tree.substitute(node, signs))
    return found


def _ordered(a: Node, b: Node) -> tuple[Node, Node]:
    last = len(_ORDER)
    if _RANK.get(b[0], last) < _RANK.get(a[0], last):
        return b, a
    return a, b


def _is_several(node: Node) -> bool:
    if node[0] in ("list", "set"):
        return True
    return tree.contains(node, _PLUS_MINUS)


def _is_time(node: Node) -> bool:
    """10:30: an hour and two digits of minutes that are no reduced ratio."""
    if len(node) != 3 or any(p[0] != "num" or p[1].denominator != 1 for p in node[1:]):
        return False
    return 0 <= node[1][1] <= 24 and 10 <= node[2][1] < 60
