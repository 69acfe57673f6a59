"""Whether two answers mean the same, kind by kind.

Every rule takes its two sides in the fixed order of their kinds, and every rule for two
sides of one kind treats them alike: so the relation is symmetric. It is reflexive
because equal trees, and equal words, are equal before any rule is asked.
"""

import itertools

from rl.verifier import tree
from rl.verifier.equality import equal, is_zero, linear_root, proportional
from rl.verifier.normalise import plain_text
from rl.verifier.regions import as_region, region_of, same_region, wordy
from rl.verifier.statements import Answer, is_label
from rl.verifier.tree import Node
from rl.verifier.units import compatible

_MAX_ITEMS = 200
_MAX_SIGNS = 64
_PLUS_MINUS = frozenset({"pm"})
_FAMILY_LETTERS = frozenset({"k", "n", "m", "l"})
_REGIONS = frozenset({"interval", "cup", "cap", "minus"})
_VALUES = frozenset({"set", "interval", "cup", "cap", "minus", "tuple", "matrix"})
_ORDER = (
    "choice list assign set cases chain rel tuple interval cup cap minus numbers"
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
    compare = _Comparison(decimals)
    parameters = left.parameters | right.parameters
    for a in filter(None, (left.node, left.other)):
        for b in filter(None, (right.node, right.other)):
            if compare.same(*_with_one_parameter(a, b, parameters)):
                return True
    return False


def _same_prose(left: str, right: str) -> bool:
    """Text that is no math differs by case and dress at most."""
    left, right = plain_text(left), plain_text(right)
    if any(char in left + right for char in "\\^_=<>"):
        return False
    long = len(left) > 3 and len(right) > 3
    return long and left.casefold() == right.casefold()


def _with_one_parameter(
    left: Node, right: Node, declared: frozenset[str]
) -> tuple[Node, Node]:
    """Gives the integer parameter of two families, k pi and n pi, one name."""
    a, b = tree.symbols(_without_label(left)), tree.symbols(_without_label(right))
    ours, theirs = a - b, b - a
    if len(ours) != 1 or len(theirs) != 1:
        return left, right
    (old,), (new,) = theirs, ours
    families = {old, new} <= _FAMILY_LETTERS and all(
        tree.contains_constant(node, "pi") or tree.contains(node, frozenset({"deg"}))
        for node in (left, right)
    )
    if families or {old, new} & declared:
        return left, tree.substitute(right, {("sym", old): ("sym", new)})
    return left, right


def _without_label(node: Node) -> Node:
    if node[0] == "rel" and node[1] in ("=", "in", "approx"):
        return node[3]
    if node[0] in ("list", "set"):
        return (node[0], *map(_without_label, node[1:]))
    return node


def value_of(node: Node) -> Node | None:
    """What a relation says its left side is: 5 for `x = 5`, `5 = x`, `S = 2+3 = 5`.

    None for an equation proper (x + y = 3) and for a contradiction (5 = 6).
    """
    steps = node[1:] if node[0] == "chain" else (node,)
    if any(step[1] not in ("=", "approx", "in", "equiv") for step in steps):
        return None
    if any(step[1] == "equiv" for step in steps):
        return None
    first, last = steps[0][2], steps[-1][3]
    if len(steps) == 1 and (steps[0][1] == "in" or last[0] in _VALUES):
        return last if last[0] != "numbers" else None
    if len(steps) == 1 and is_label(last) and not is_label(first):
        first, last = last, first
        return last if not tree.symbols(last) & tree.symbols(first) else None
    parts = [first, *(step[3] for step in steps)]
    exact = [p for p, step in zip(parts[1:], steps, strict=True) if step[1] == "="]
    known = [part for part in exact or parts[1:] if not is_label(part)] or [last]
    if is_label(first):
        if first[0] == "sym" and tree.symbols(first) & tree.symbols(last):
            return None
    elif len(steps) == 1 or tree.symbols(known[0]):
        if tree.symbols(first) or not tree.is_expression(first):
            return None
        known = [first, *known]
    if all(map(tree.is_expression, known)):
        if not all(equal(known[0], other) for other in known[1:]):
            return None
        return known[-1]
    return known[-1] if len(known) == 1 else None


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


class _Comparison:
    """One comparison of two trees; holds only the option."""

    def __init__(self, decimals: bool):
        self._decimals = decimals

    def same(self, a: Node, b: Node) -> bool:
        """Whether two nodes mean the same."""
        if a == b:
            return True
        if tree.is_expression(a) and tree.is_expression(b):
            plain = frozenset({"pm", "percent", "deg"})
            if not (a[0] in plain or b[0] in plain):
                if not (tree.contains(a, _PLUS_MINUS) or tree.contains(b, _PLUS_MINUS)):
                    return equal(a, b, self._decimals)
        if a[0] in ("choice", "word") or b[0] in ("choice", "word"):
            return self._same_words(*_ordered(a, b))
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
        if _relates_names(a) and _relates_names(b):
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
        for one, other in ((a, b), (b, a)):
            if (
                one[0] == "list"
                and other[0] == "tuple"
                and not tree.contains(other, _PLUS_MINUS)
            ):
                labelled = _labelled_values(one)
                return labelled is not None and self.same(("tuple", *labelled), other)
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
        labelled = _labelled_values(a)
        return labelled is not None and self.same(("tuple", *labelled), b)

    def _cases(self, a: Node, b: Node) -> bool:
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
        a, b = _ascending(a), _ascending(b)
        return all(
            x[1] == y[1] and self.same(x[2], y[2]) and self.same(x[3], y[3])
            for x, y in zip(a[1:], b[1:], strict=True)
        )

    def _rel(self, a: Node, b: Node) -> bool:
        value = value_of(a)
        if b[0] == "rel":
            return self._two_relations(a, b, value, value_of(b))
        if value is not None:
            return self.same(value, b)
        if a[1] == "=" and tree.is_expression(b):
            return _solves(b, a)
        return False

    def _two_relations(self, a, b, value_a, value_b) -> bool:
        if value_a is not None and value_b is not None:
            label_a, label_b = _label(a), _label(b)
            if label_a == label_b or label_a is None or label_b is None:
                return self.same(value_a, value_b)
            if label_a[0] == label_b[0] == "call" and len(label_a) == len(label_b):
                renamed = dict(zip(label_b[2:], label_a[2:], strict=True))
                if all(name[0] == "sym" for name in renamed):
                    return self.same(value_a, tree.substitute(value_b, renamed))
                return False
            if wordy(label_a) or wordy(label_b) or _is_y_of_x(label_a, label_b):
                return self.same(value_a, value_b)
            if label_a[0] == label_b[0] == "tuple":
                return False
        if a[1] != b[1]:
            a, b = _ascending(a), _ascending(b)
        if a[1] != b[1] or not all(map(tree.is_expression, (*a[2:], *b[2:]))):
            return False
        first = tree.add(a[2], tree.negative(a[3]))
        second = tree.add(b[2], tree.negative(b[3]))
        if not (tree.symbols(first) and tree.symbols(second)):
            return self.same(a[2], b[2]) and self.same(a[3], b[3])
        if a[1] in ("=", "!=", "approx", "equiv"):
            return proportional(first, second)
        a, b = _ascending(a), _ascending(b)
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
        return all(
            self.same(x, y) if isinstance(x, tuple) and isinstance(y, tuple) else x == y
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


def _ordered(a: Node, b: Node) -> tuple[Node, Node]:
    last = len(_ORDER)
    if _RANK.get(b[0], last) < _RANK.get(a[0], last):
        return b, a
    return a, b


def _is_several(node: Node) -> bool:
    if node[0] in ("list", "set"):
        return True
    return tree.contains(node, _PLUS_MINUS)


def _labelled_values(node: Node) -> list[Node] | None:
    """Values of "p = 5, q = 2" in the order of the labels."""
    pairs = []
    for part in node[1:]:
        if part[0] != "rel" or part[1] != "=" or part[2][0] != "sym":
            return None
        pairs.append((part[2][1], part[3]))
    if len({name for name, _ in pairs}) != len(pairs):
        return None
    return [value for _, value in sorted(pairs, key=lambda pair: pair[0])]


def _label(node: Node) -> Node | None:
    if is_label(node[2]) or node[2][0] == "tuple":
        return node[2]
    return node[3] if is_label(node[3]) else None


def _is_y_of_x(first: Node, second: Node) -> bool:
    kinds = {first[0], second[0]}
    return kinds == {"sym", "call"} and ("sym", "y") in (first, second)


def _relates_names(node: Node) -> bool:
    """a < b is about both names, not a half-line of one."""
    return node[0] == "rel" and is_label(node[2]) and is_label(node[3])


def _ascending(node: Node) -> Node:
    """A relation or chain with its greater side last."""
    flipped = {">": "<", ">=": "<="}
    if node[0] == "rel":
        if node[1] in flipped:
            return ("rel", flipped[node[1]], node[3], node[2])
        return node
    if node[1][1] in flipped:
        return ("chain", *(_ascending(step) for step in reversed(node[1:])))
    return node


def _is_time(node: Node) -> bool:
    """10:30: an hour and two digits of minutes that are no reduced ratio."""
    if len(node) != 3 or any(p[0] != "num" or p[1].denominator != 1 for p in node[1:]):
        return False
    return 0 <= node[1][1] <= 24 and 10 <= node[2][1] < 60


def _solves(value: Node, equation: Node) -> bool:
    """Whether an equation that is linear in an unknown gives it this value."""
    left, right = equation[2], equation[3]
    if not (tree.is_expression(left) and tree.is_expression(right)):
        return False
    difference = tree.add(left, tree.negative(right))
    for name in sorted(tree.symbols(difference) - tree.symbols(value))[:4]:
        if tree.symbols(difference) - {name} - tree.symbols(value):
            continue
        root = linear_root(difference, name)
        if root is not None and equal(root, value):
            return True
    return False
