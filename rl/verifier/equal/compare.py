"""Compares two answers with rules for the kinds of their nodes.

Nodes of different kinds are put in a fixed order first, so a pair needs only one rule.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..parse import relations
from ..parse import tree as t
from ..parse.answers import Answer
from ..parse.budget import Open
from ..parse.normalize import plain_text
from ..parse.relations import ascending, label_of, name_one_function, steps_of, value_of
from ..parse.units import may_be_missing, parse_unit, same_unit
from .prover import Prover
from .regions import Incomparable, Region, Regions, parts

_MAX_ITEMS = 40
"""Maximum number of list items compared by value; further items must be identical."""
_MAX_SIGNS = 4
_STEPS_OF_A_PAIR = 20
_COUNTING = frozenset("kmn")
_OPTIONS = frozenset("ABCDE")
_MARKED = (t.Percent, t.Degrees)
_RADIANS = "rad^1"


def same_answer(left: Answer, right: Answer, prover: Prover) -> bool:
    """Returns whether two answers are equal; may raise `Open` or `RecursionError`."""
    if left.text == right.text:
        return True
    if left.node is None or right.node is None:
        return _same_prose(left.text, right.text)
    for a in filter(None, (left.node, left.other)):
        for b in filter(None, (right.node, right.other)):
            signs = t.contains(a, t.Sign) or t.contains(b, t.Sign)
            if _Comparison(prover, signs=signs).same(a, _renamed(b, a)):
                return True
    return False


def _renamed(b: t.Node, a: t.Node) -> t.Node:
    """Renames k, m or n in `b` to the letter of `a`, in angles such as 2 pi k."""
    if t.contains(a, t.Const, t.Degrees) or t.contains(b, t.Const, t.Degrees):
        mine = (a.names - b.names) & _COUNTING
        theirs = (b.names - a.names) & _COUNTING
        if len(mine) == len(theirs) == 1:
            both = t.Several((a, b))
            if t.Const("pi") in t.walk(both) or t.contains(both, t.Degrees):
                return t.substitute(b, {t.Sym(*theirs): t.Sym(*mine)})
    return b


def _same_prose(left: str, right: str) -> bool:
    left, right = plain_text(left), plain_text(right)
    if any(char in left + right for char in "\\^_=<>"):
        return False
    long = len(left) > 3 and len(right) > 3
    return long and left.casefold() == right.casefold()


class _Comparison:
    def __init__(self, prover: Prover, *, signs: bool = True):
        self._prover = prover
        self._signs = signs
        self._regions = Regions(prover)

    def same(self, a: t.Node, b: t.Node) -> bool:
        self._prover.charge(3)
        if type(a) is t.Several and type(b) is t.Several:
            # "and" and "or" differ here, but "1 and 2" is the same list as "1 or 2".
            if {a.joined, b.joined} == {"and", "or"} and _states(a) and _states(b):
                return False
        if a == b:
            return True
        signs = self._signs and (t.contains(a, t.Sign) or t.contains(b, t.Sign))
        if (type(a) is t.Matrix) != (type(b) is t.Matrix):
            a, b = _as_tuple(a), _as_tuple(b)
        if isinstance(a, t.Expression) and isinstance(b, t.Expression) and not signs:
            if not isinstance(a, _MARKED) and not isinstance(b, _MARKED):
                return self._prover.equal(a, b)
        kinds = {type(a), type(b)}
        if not kinds.isdisjoint((t.Choice, t.Word)):
            return self._same_words(*_ordered(a, b))
        if signs:
            return self._same_items(a, b)
        if (regions := self._same_regions(a, b)) is not None:
            return regions
        if not kinds.isdisjoint((t.Several, t.Braces)):
            return self._same_items(a, b)
        a, b = _ordered(a, b)
        rule = _RULES.get(type(a))
        return rule is not None and rule(self, a, b)

    # --- words

    def _same_words(self, a: t.Node, b: t.Node) -> bool:
        if isinstance(a, t.Choice):
            if isinstance(b, t.Choice):
                return a.letter == b.letter and self.same(a.answer, b.answer)
            if _is_letter(a.answer) and _is_letter(b) and a.answer != t.Sym(a.letter):
                if {a.letter, a.answer.name} <= _OPTIONS:
                    return False  # "(D) C" may mean either of two options
            if b in (t.Sym(a.letter), t.Word(a.letter.casefold())):
                return True
            return self.same(a.answer, b)
        if isinstance(b, t.Word):
            a, b = b, a
        parts = b.factors if isinstance(b, t.Mul) else (b,)
        if not all(isinstance(part, t.Sym | t.Const) for part in parts):
            return False
        return "".join(part.name for part in parts).casefold() == a.text

    # --- sets of reals

    def _same_regions(self, a: t.Node, b: t.Node) -> bool | None:
        """Compares sets of reals; returns None if another rule must decide."""
        if relations.relates_names(a) and relations.relates_names(b):
            return None
        first, second = self._regions.read(a), self._regions.read(b)
        if first is None and second is None:
            return None
        if _names_coordinates(a) or _names_coordinates(b):
            return False
        first, second = first or self._as_region(a), second or self._as_region(b)
        if first is None or second is None:
            return None
        try:
            return self._regions.same(first, second)
        except Incomparable:
            one, other = parts(first.node), parts(second.node)
            if len(one) == len(other) == 1:
                return self._same_parts(one[0], other[0])
            return bool(one) and self._matched(one, other)

    def _as_region(self, node: t.Node) -> Region | None:
        found = self._regions.read_as_region(node)
        if found is None and isinstance(node, t.Rel | t.Chain):
            if (value := value_of(node, self._prover)) is not None:
                return self._regions.read_as_region(value)
        return found

    # --- several answers

    def _same_items(self, a: t.Node, b: t.Node) -> bool:
        a, b = self._without_label(a), self._without_label(b)
        for one, other in ((a, b), (b, a)):
            if isinstance(one, t.Several | t.Braces) and isinstance(other, t.Tuple):
                if not t.contains(other, t.Sign):
                    if getattr(one, "joined", "") == "or":
                        return False
                    if (labelled := relations.labelled_values(one)) is not None:
                        return self.same(t.Tuple(tuple(labelled)), other)
                    if isinstance(one, t.Several):
                        return False
        first, second = self._items(a), self._items(b)
        if isinstance(a, t.Braces) or isinstance(b, t.Braces):
            first, second = self._distinct(first), self._distinct(second)
        if len(first) != len(second):
            return False
        if len(first) == 1 and not (_is_several(first[0]) or _is_several(second[0])):
            return self.same(first[0], second[0])
        return self._matched(first, second)

    def _without_label(self, node: t.Node) -> t.Node:
        if isinstance(node, t.Rel | t.Chain):
            value = value_of(node, self._prover)
            if value is not None and (isinstance(value, t.Tuple) or _is_several(value)):
                return value
        return node

    def _items(self, node: t.Node) -> list[t.Node]:
        nodes = node.items if isinstance(node, t.Several | t.Braces) else (node,)
        if not t.contains(node, t.Sign):
            return list(nodes)
        return [v for n in nodes for v in self._distinct(_plus_minus_values(n))]

    def _distinct(self, nodes: list[t.Node]) -> list[t.Node]:
        nodes = list(dict.fromkeys(nodes))
        exact = all(type(node) is t.Num and node.ulp is None for node in nodes)
        if exact or len(nodes) > _MAX_ITEMS:
            return nodes
        found: list[t.Node] = []
        for node in nodes:
            if not any(self.same(node, other) for other in found):
                found.append(node)
        return found

    def _matched(self, first: Sequence[t.Node], second: Sequence[t.Node]) -> bool:
        if len(first) != len(second):
            return False
        wanted, given = Counter(first), Counter(second)
        rest = list((given - wanted).elements())
        if len(rest) > _MAX_ITEMS:
            return False
        for item in (wanted - given).elements():
            for index, other in enumerate(rest):
                self._prover.charge(_STEPS_OF_A_PAIR)
                if self.same(item, other):
                    del rest[index]
                    break
            else:
                return False
        return True

    def _same_cases(self, a: t.Cases, b: t.Node) -> bool:
        if isinstance(b, t.Rel):
            b = value_of(b, self._prover) or b
        return isinstance(b, t.Cases) and self._matched(a.rows, b.rows)

    # --- relations

    def _same_chains(self, a: t.Chain, b: t.Node) -> bool:
        value = value_of(a, self._prover)
        if value is not None:
            return self.same(value, b)
        if not isinstance(b, t.Chain) or len(a.steps) != len(b.steps):
            return False
        return all(
            x.op == y.op and self.same(x.left, y.left) and self.same(x.right, y.right)
            for x, y in zip(ascending(a).steps, ascending(b).steps, strict=True)
        )

    def _same_relations(self, a: t.Rel, b: t.Node) -> bool:
        value = value_of(a, self._prover)
        if not isinstance(b, t.Rel):
            return value is not None and self.same(value, b)
        other = value_of(b, self._prover)
        if value is not None and other is not None:
            label_a, label_b = label_of(a), label_of(b)
            alike = label_a == label_b or label_a is None or label_b is None
            if alike or name_one_function(label_a, label_b, self._prover.named):
                return self.same(value, other)
            if isinstance(label_a, t.Tuple) and isinstance(label_b, t.Tuple):
                return False
        a, b = ascending(a), ascending(b)
        sides = (a.left, a.right, b.left, b.right)
        if a.op != b.op or not all(isinstance(side, t.Expression) for side in sides):
            return False
        first = t.add(a.left, t.mul(t.MINUS_ONE, a.right))
        second = t.add(b.left, t.mul(t.MINUS_ONE, b.right))
        if not (first.names and second.names):
            return self.same(a.left, b.left) and self.same(a.right, b.right)
        directed = a.op not in t.SYMMETRIC
        return self._prover.proportional(first, second, positive=directed)

    # --- parts in order

    def _same_tuples(self, a: t.Tuple, b: t.Node) -> bool:
        if isinstance(b, t.Call) and len(b.name) == 1 and b.name.isupper():
            b = t.Tuple(b.arguments)  # P(3, 4) is a point
        return self._same_parts(a, b)

    def _same_parts(self, a: t.Node, b: t.Node) -> bool:
        if type(a) is not type(b):
            return False
        for name in a.__match_args__:
            x, y = getattr(a, name), getattr(b, name)
            if isinstance(x, tuple):
                if len(x) != len(y) or not all(map(self.same, x, y)):
                    return False
            elif not (self.same(x, y) if isinstance(x, t.Node) else x == y):
                return False
        return True

    # --- measured and marked numbers

    def _same_clocks(self, a: t.Clock, b: t.Node) -> bool:
        match b:
            case t.Clock():
                # "am" or "pm" may be missing unless a side counts 24 hours.
                unsaid = None in (a.half, b.half) and not (a.of_day or b.of_day)
                return a.minutes == b.minutes and (unsaid or a.half == b.half)
            case t.Ratio((t.Num(hours), t.Num(minutes))) if _is_time(b):
                other = t.time_of_day(int(hours), int(minutes))
                return other is not None and self.same(a, other)
        return False

    def _same_ratios(self, a: t.Ratio, b: t.Node) -> bool:
        if isinstance(b, t.Ratio):
            if len(a.parts) != len(b.parts):
                return False
            if not self._prover.ratios and (_is_time(a) or _is_time(b)):
                return self._same_parts(a, b)
            return all(
                self._prover.equal(t.mul(a.parts[0], y), t.mul(b.parts[0], x))
                for x, y in zip(a.parts[1:], b.parts[1:], strict=True)
            ) and not any(self._prover.equal(r.parts[0], t.ZERO) for r in (a, b))
        if isinstance(b, t.Quantity):
            words = isinstance(b.unit, frozenset) and may_be_missing(b.unit)
            return words and self.same(a, b.value)
        if self._prover.times and _is_time(a):
            return False
        return len(a.parts) == 2 and self.same(t.divide(*a.parts), b)

    def _same_quantities(self, a: t.Quantity, b: t.Node) -> bool:
        if isinstance(b, t.Degrees) and a.unit == _RADIANS:
            return self._prover.equal(a.value, b)
        if isinstance(b, t.Degrees) and a.unit in ("celsius^1", "fahrenheit^1"):
            return self.same(a.value, b.value)
        if isinstance(b, t.Percent | t.Degrees | t.Ratio | t.Clock):
            # "5% growth" equals 5%, but "5 apples" does not.
            words = isinstance(a.unit, frozenset) and may_be_missing(a.unit)
            return words and type(a.value) is type(b) and self.same(a.value, b)
        # A letter that occurs in both answers is a variable, not a unit: l in l^2/8.
        if not isinstance(b, t.Quantity) and not a.value.names & b.names:
            b = _in_letters(b) or b
        if not isinstance(b, t.Quantity):
            return may_be_missing(a.unit) and self.same(a.value, b)
        values = t.values_in_one_size(a, b)
        if values is None or not same_unit(a.unit, b.unit):
            return False
        return self.same(*values)

    def _same_marked(self, a: t.Percent | t.Degrees, b: t.Node) -> bool:
        if isinstance(b, _MARKED):
            return type(a) is type(b) and self.same(a.value, b.value)
        if not isinstance(b, t.Expression):
            return False
        percent = isinstance(a, t.Percent)
        if percent and self._prover.percents_only:
            return self.same(a.value, b)
        if (not percent or self._prover.percents) and self.same(a.value, b):
            return True
        return self._prover.equal(t.divide(a.value, t.number(100)) if percent else a, b)


_RULES: dict[type, Callable[[_Comparison, Any, t.Node], bool]] = {
    t.Cases: _Comparison._same_cases,
    t.Chain: _Comparison._same_chains,
    t.Rel: _Comparison._same_relations,
    t.Tuple: _Comparison._same_tuples,
    **dict.fromkeys((t.Interval, t.SetOp, t.Matrix), _Comparison._same_parts),
    t.Clock: _Comparison._same_clocks,
    t.Ratio: _Comparison._same_ratios,
    t.Quantity: _Comparison._same_quantities,
    t.Percent: _Comparison._same_marked,
    t.Degrees: _Comparison._same_marked,
    t.Based: lambda c, a, b: isinstance(b, t.Expression) and c.same(t.Num(a.value), b),
    t.When: _Comparison._same_parts,
}
"""Rules by the kind of the first node. Of two kinds, the one listed first is first."""
_RANK = {kind: rank for rank, kind in enumerate((t.Choice, *_RULES))}


def _states(node: t.Several) -> bool:
    """Returns whether a list has words, or relations in different variables."""
    related = [item for item in node.items if isinstance(item, t.Rel)]
    named = {label_of(item) for item in related if len(item.names) == 1}
    return len(named) > 1 or any(isinstance(item, t.Word) for item in node.items)


def _is_letter(node: t.Node) -> bool:
    return isinstance(node, t.Sym) and len(node.name) == 1 and node.name.isupper()


def _as_tuple(node: t.Node) -> t.Node:
    match node:
        case t.Matrix(width, cells) if width in (1, len(cells)):
            return t.Tuple(cells)
        case t.Interval(low, high, True, True):
            return t.Tuple((low, high))
    return node


def _in_letters(node: t.Node) -> t.Quantity | None:
    """Returns the quantity that a product such as 9.8 m/s^2 may mean, or None."""
    if not isinstance(node, t.Mul):
        return None
    words, numbers = [], []
    for factor in node.factors:
        match factor:
            case t.Sym(name):
                words.append(name)
            case t.Pow(t.Sym(name), t.Num(exponent)):
                words.append(f"{name} ^ {exponent}")
            case _:
                numbers.append(factor)
    reading = parse_unit(" ".join(words)) if words else None
    if reading is None or not isinstance(reading.unit, str):
        return None
    return t.Quantity(t.mul(*numbers), reading.unit, reading.scale)


def _plus_minus_values(node: t.Node) -> list[t.Node]:
    """Returns a node for each choice of its signs ±; raises `Open` for over 4 signs."""
    if not t.contains(node, t.Sign):
        return [node]
    count = sum(isinstance(part, t.Sign) for part in t.walk(node))
    if count > _MAX_SIGNS:
        raise Open

    def chosen(part: t.Node) -> t.Node:
        if isinstance(part, t.Sign):
            return t.number(next(signs))
        return t.rebuilt(part, chosen)

    found = []
    for choice in itertools.product((1, -1), repeat=count):
        signs = iter(choice)
        found.append(t.fold(chosen(node)))
    return found


def _ordered(a: t.Node, b: t.Node) -> list[t.Node]:
    return sorted((a, b), key=lambda node: _RANK.get(type(node), len(_RANK)))


def _names_coordinates(node: t.Node) -> bool:
    if not isinstance(node, t.Rel | t.Chain):
        return False
    return isinstance(steps_of(node)[0].left, t.Tuple)


def _is_several(node: t.Node) -> bool:
    return isinstance(node, t.Several | t.Braces) or t.contains(node, t.Sign)


def _is_time(node: t.Ratio) -> bool:
    if len(node.parts) != 2 or not all(map(t.is_integer, node.parts)):
        return False
    hours, minutes = (part.value for part in node.parts)
    return 0 <= hours <= 24 and 10 <= minutes < 60
