"""Judges answers: equal to a gold, finished, and not copied from the problem."""

import dataclasses
import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

from ..equal.compare import same_answer
from ..equal.prover import Prover, Way
from ..parse import tree as t
from ..parse.answers import Answer, parse_answer
from ..parse.budget import Budget, Open
from ..parse.extract import extract_boxes
from ..parse.relations import is_decimal, is_distance, is_label, steps_of
from ..parse.units import stems
from . import completeness
from .canonical import shape_of
from .completeness import notation
from .echo import Formulas
from .question import Question

Rule = Literal[
    Way,
    "no_answer", "unreadable", "different", "open", "unfinished", "echo",
    "tolerance", "bad_gold", "lost",
]  # fmt: skip
"""Names what decided a verdict; docs/verifier.md has a table of all rules."""

UNEVALUATED = "leaves arithmetic to be done"
"""Reason of verdicts on answers that leave more to calculate than their gold."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Represents the verdict on one completion.

    Attributes:
      correct: whether the answer equals a gold, is finished and is not a copy. None if
        no verdict is possible; then the completion must not be trained on.
      answer: extracted answer, or None.
      rule: name of the rule that decided, or "reward" for a reward function of a user.
      reason: short explanation of the verdict.
    """

    correct: bool | None
    answer: str | None
    rule: Rule | Literal["reward"]
    reason: str = ""


_STEPS_OF_A_SHAPE = 4
"""Budget steps charged per node of an answer's tree, times the depth of the tree."""


class Examiner:
    """Judges answers to one problem; see `judge` for the arguments."""

    def __init__(
        self, golds: Sequence[str], problem: str | None = None, *, literal: bool = True
    ):
        self._literal = literal
        self._problem = problem or ""
        self._golds = [(gold, parse_answer(gold)) for gold in golds]

    def judge(self, answer: str | Sequence[str] | None) -> Verdict:
        """Returns the verdict on an answer: the contents of one or more boxes, or None.

        Several boxes form one list if a gold is a list or set or has a plus-minus sign;
        otherwise only the last box counts.
        """
        if answer is not None and not isinstance(answer, str):
            golds = [gold.node or t.ZERO for _, gold in self._golds]
            several = t.Several | t.Braces
            lists = any(isinstance(g, several) or t.contains(g, t.Sign) for g in golds)
            answer = (", ".join(answer) if lists else answer[-1]) if answer else None
        if answer is None:
            return Verdict(False, None, "no_answer", "has no closed box with an answer")
        if self._golds and answer == self._golds[0][0]:
            return Verdict(True, answer, "text", "has the same text as the gold")
        written = self._question.respelled(answer) if self._problem else answer
        parsed = self._without_requested_sum(parse_answer(written))
        budget = Budget()
        is_open, refused = False, None
        for text, gold in self._golds:
            if answer == text or parsed.text == gold.text:
                return Verdict(True, answer, "text", "has the same text as the gold")
            given, wanted = parsed, gold
            if self._problem:
                if not self._has_requested_unit(parsed, gold, stems(text)):
                    continue
                if _counts(parsed) != _counts(gold):
                    given, wanted = _without_things(parsed), _without_things(gold)
                given = self._in_base(given, gold)
            requested = self._question.units
            kinds = (part.unit for part in _quantities(parsed))
            units = {u.partition(" of ")[0] for u in kinds if isinstance(u, str)}
            if units and requested and wanted.node and _is_bare(gold.node):
                unit = next((u for u in requested if u.unit in units), requested[0])
                assert unit.unit is not None
                node = t.Quantity(wanted.node, unit.unit, unit.scale)
                wanted = dataclasses.replace(wanted, node=node)
            has_sign = t.contains(gold.node or t.ZERO, t.Percent)
            asked = self._question.asks_percent or has_sign
            prover = Prover(
                budget=budget,
                percents=self._question.percents and asked or not self._problem,
                points=self._question.points and isinstance(gold.node, t.Tuple),
                ratios=self._question.ratios,
                times=self._question.times,
                percents_only=self._question.what_percent and not has_sign,
                named=self._question.letters if self._problem else None,
            )
            try:
                if same_answer(given, wanted, prover):
                    in_words = parsed.node is None or isinstance(parsed.node, t.Word)
                    way: Way = "text" if in_words else prover.way
                    meant = _as_meant(given, wanted, prover)
                    why = self._refused(meant, gold.written, prover)
                    if why is None:
                        return Verdict(True, answer, way, _REASONS[way])
                    # The answer may still match another gold in its written form.
                    refused = refused or Verdict(False, answer, *why)
                    continue
            except (Open, RecursionError):
                is_open = True
                continue
            except Exception as fault:
                # A bug of the verifier proves nothing, so the answer is not credited.
                what = f"was not judged, because the verifier failed: {fault!r}"
                return Verdict(False, answer, "open", what)
            is_open = is_open or prover.is_open
        if refused is not None:
            return refused
        if not any(gold.node or _is_prose(gold) for _, gold in self._golds):
            reasons = [f"the gold {gold.reason}" for _, gold in self._golds]
            return Verdict(None, answer, "bad_gold", (*reasons, "there is no gold")[0])
        if parsed.node is None:
            return Verdict(False, answer, "unreadable", parsed.reason)
        if is_open:
            what = "could not be shown equal or different within the limits"
            return Verdict(False, answer, "open", what)
        return Verdict(False, answer, "different", "differs from every gold")

    def _has_requested_unit(
        self, answer: Answer, gold: Answer, words: frozenset[str]
    ) -> bool:
        quantities = _quantities(answer)
        if not all(self._question.allows(part.unit, words) for part in quantities):
            return False
        measured = any(isinstance(part.unit, str) for part in quantities)
        return not (measured and self._question.things and _is_bare(gold.node))

    def _in_base(self, answer: Answer, gold: Answer) -> Answer:
        match answer.written, gold.node:
            case t.Num(value, None), t.Based(_, base) if answer.other is None:
                digits, named = str(value), base in self._question.bases
                if named and digits.isdigit() and max(map(int, digits)) < base:
                    meant = t.Based(digits, base)
                    return dataclasses.replace(answer, other=meant, other_written=meant)
        return answer

    def _without_requested_sum(self, answer: Answer) -> Answer:
        """Reduces `x + y = 17` to 17 if the problem only asks for `x + y`."""
        node, written = answer.node, answer.written
        if not isinstance(written, t.Rel | t.Chain) or type(node) is not type(written):
            return answer
        first, *_ = steps = steps_of(written)
        named = shape_of(first.left) in self._formulas.to_compute
        copied = shape_of(written) in self._formulas.trees
        label = is_label(first.left) and not is_distance(first.left)
        unsolved = named and not (copied or label) and first.left.names
        if not unsolved or any(step.op != "=" for step in steps):
            return answer
        return dataclasses.replace(answer, node=_behind(node), written=_behind(written))

    def _refused(
        self, written: t.Node | None, wanted: t.Node | None, prover: Prover
    ) -> tuple[Rule, str] | None:
        if isinstance(written, t.Choice) and self._contradicts(written, prover):
            return "different", "names an option that has another value"
        letter = isinstance(written, t.Choice) and wanted == t.Sym(written.letter)
        if written is None or wanted is None or letter:
            return None
        size = sum(1 for _ in t.walk(written))
        prover.charge(_STEPS_OF_A_SHAPE * size * t.depth(written))
        if (left := completeness.unfinished(written, wanted)) is not None:
            return "unfinished", left
        if self._problem and shape_of(written) != shape_of(wanted):
            stated = _stated_values(written)
            value, *others = _stated_values(wanted) or [wanted]
            value = wanted if others else value
            if _items(value) == [value]:
                stated = [item for each in stated for item in _items(each)]
            formulas = self._formulas
            copied = (formulas.contained_in(s, value, prover) for s in stated)
            if stated and all(copied) or formulas.match(written, wanted, prover):
                return "echo", "is copied from the problem"
            undone = [self._left_to_do(s, value, prover) or "" for s in stated]
            if undone and all(undone):
                return "unfinished", undone[0]
        if self._literal and completeness.unevaluated(written, wanted):
            return "unfinished", UNEVALUATED
        return None

    def _contradicts(self, choice: t.Choice, prover: Prover) -> bool:
        """Returns whether `choice` contradicts the options that the problem lists."""
        options = self._question.options
        value = t.fold(choice.answer)
        given = Answer(f"({choice.letter})", choice.answer, value)
        own = options.get(choice.letter)
        if own is not None and same_answer(given, own, prover):
            return False
        numbers = own is not None and _is_bare(value) and _is_bare(own.node)
        return numbers or any(same_answer(given, o, prover) for o in options.values())

    def _left_to_do(self, answer: t.Node, gold: t.Node, prover: Prover) -> str | None:
        if (left := completeness.left_to_evaluate(answer, gold, prover)) is not None:
            return left
        how, asked = notation(answer), notation(gold)
        if how != asked and "base" in how + asked:
            return "is written in another base"
        shape = shape_of(answer)
        one = isinstance(gold, t.Expression | t.Based)
        if one and how not in (asked, "expression") and self._question.notation:
            hundredth = t.Num(Fraction(1, 100 if how == "percent" else 1))
            if self._is_given(shape) or self._is_given(t.Mul((shape, hundredth))):
                return f"repeats the problem's own {how}"
        if self._is_restated(answer, gold):
            return "repeats a number of the problem"
        return None

    def _is_restated(self, answer: t.Node, gold: t.Node) -> bool:
        value, wanted = t.fold(shape_of(answer)), t.fold(shape_of(gold))
        if notation(gold) == "expression" and self._formulas.to_rewrite:
            return self._is_given(value)
        if not (isinstance(value, t.Num) and isinstance(wanted, t.Num)):
            return False
        converted = value != wanted or notation(gold) == "expression"
        return converted and any(
            (abs(number.value), q.unit, q.scale) in self._question.quantities
            for q in t.walk(answer)
            if isinstance(q, t.Quantity)
            and isinstance(number := t.fold(q.value), t.Num)
        )

    def _is_given(self, shape: t.Node) -> bool:
        value = t.fold(shape)
        return isinstance(value, t.Num) and abs(value.value) in self._numbers

    @functools.cached_property
    def _numbers(self) -> frozenset[Fraction]:
        written = self._formulas.trees.values()
        values = (t.fold(shape_of(f)) for f in written if notation(f) != "expression")
        numbers = (abs(value.value) for value in values if isinstance(value, t.Num))
        return self._question.numbers.union(numbers)

    @functools.cached_property
    def _question(self) -> Question:
        return Question(self._problem)

    @functools.cached_property
    def _formulas(self) -> Formulas:
        return Formulas(self._problem)


_REASONS: dict[Way, str] = {
    "text": "has the same words as the gold",
    "number": "has the same numbers and names as the gold",
    "enclosure": "has the value of the gold, by interval arithmetic or rounding",
}


def judge(
    completion: str,
    gold: str | Sequence[str],
    problem: str | None = None,
    *,
    after: str | None = None,
    literal: bool = True,
) -> Verdict:
    r"""Returns the verdict on a completion.

    Args:
      completion: text of the completion; its answer is in its last `\boxed{...}`, or in
        the last boxes if these form a list.
      gold: accepted answer, or several answers of which any may match.
      problem: text of the problem. If given, units must fit it, and copies of its
        formulas are refused.
      after: delimiter such as `</think>`; only text after its last occurrence counts.
      literal: whether to reject answers that leave more to calculate than the gold.
    """
    golds = (gold,) if isinstance(gold, str) else tuple(gold)
    examiner = _examiner(golds, problem, literal=literal)
    return examiner.judge(extract_boxes(completion, after=after))


_examiner = functools.lru_cache(maxsize=64)(Examiner)


def _stated_values(answer: t.Node) -> list[t.Node]:
    """Returns an answer, or the values in a relation, exact ones if there are any."""
    if isinstance(answer, t.Choice):
        answer = answer.answer
    if not isinstance(answer, t.Rel | t.Chain):
        return [answer]
    values = completeness.values_in(answer)
    return [value for value in values if not is_decimal(value)] or values


def _behind(node: Any) -> t.Node:
    first, *rest = steps_of(node)
    if not rest:
        return first.right
    return rest[0] if len(rest) == 1 else t.Chain(tuple(rest))


def _items(value: t.Node) -> list[t.Node]:
    match value:
        case t.Several() | t.Braces() | t.Tuple() | t.Interval() | t.Matrix():
            return [item for part in t.children(value) for item in _items(part)]
        case t.Rel() | t.Chain():
            return [item for side in _stated_values(value) for item in _items(side)]
    return [value]


def _as_meant(answer: Answer, gold: Answer, prover: Prover) -> t.Node | None:
    """Returns `written` or `other_written` of an answer, whichever equals the gold."""
    alone = dataclasses.replace(answer, other=None)
    if answer.other is None or same_answer(alone, gold, prover):
        return answer.written
    return answer.other_written


def _is_prose(gold: Answer) -> bool:
    return bool(gold.text) and not any(char in gold.text for char in "\\^_=<>{}")


def _quantities(answer: Answer) -> list[t.Quantity]:
    return [
        part
        for reading in filter(None, (answer.node, answer.other))
        for part in t.walk(reading)
        if isinstance(part, t.Quantity)
    ]


def _is_bare(node: t.Node | None) -> bool:
    marked = isinstance(node, t.Percent | t.Degrees)
    return isinstance(node, t.Expression) and not marked and not node.names


def _counts(answer: Answer) -> bool:
    return any(isinstance(part.unit, frozenset) for part in _quantities(answer))


def _without_things(answer: Answer) -> Answer:
    def bare(node: t.Node) -> t.Node:
        node = t.rebuilt(node, bare)
        things = isinstance(node, t.Quantity) and isinstance(node.unit, frozenset)
        return node.value if things else node

    node, other = answer.node and bare(answer.node), answer.other and bare(answer.other)
    return dataclasses.replace(answer, node=node, other=other)
