"""What a reward asks of an answer, besides being equal: that it is finished.

An answer is the end of somebody's work. A relation that is still to be solved, a sum,
an integral or a limit that nobody evaluated, or an expression copied from the problem
may well be equal to the gold and shows nothing: it is refused, unless the gold itself
is of that kind.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence, Set
from typing import Literal

from rl.verifier.answers import Answer, parse_answer
from rl.verifier.asked import Asked
from rl.verifier.budget import Budget, Open
from rl.verifier.compare import same_answer
from rl.verifier.equality import Prover, Way
from rl.verifier.extract import extract_answer
from rl.verifier.nodes import (
    MINUS_ONE,
    ONE,
    SYMMETRIC,
    ZERO,
    Add,
    Big,
    Braces,
    Call,
    Chain,
    Choice,
    Clock,
    Congruence,
    Const,
    Date,
    Degrees,
    Expression,
    Fn,
    Interval,
    Mul,
    Node,
    Num,
    Numbers,
    Percent,
    Pow,
    Quantity,
    Ratio,
    Rel,
    SetOp,
    Several,
    Sym,
    Tuple,
    Word,
    children,
    contains,
    fold,
    rebuilt,
    symbols,
    walk,
)
from rl.verifier.relations import function_of, is_decimal, is_label, steps_of
from rl.verifier.units import Reading, measure_in, stems

Rule = Literal[
    Way,
    "no_answer", "unreadable", "different", "open", "unfinished", "echo",
    "tolerance", "bad_gold", "lost",
]  # fmt: skip
"""What decided: the way in which the answer was shown equal to the gold (text, number,
algebra, enclosure); or why it was not credited (no_answer, unreadable, different, open:
not shown within the budget, unfinished, echo: copied from the problem); or why there is
no verdict (bad_gold: no accepted answer can be read, lost: the pool's worker died or
was stopped twice). A reward adds `tolerance`: as near as
the problem's row allows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier says of one completion.

    Attributes:
      correct: whether its answer is finished and equal to an accepted one; None where
        there is no verdict, so that nobody may learn from it.
      answer: the extracted answer, None where there is none.
      rule: what decided; see `Rule`. "reward" where it was a function of the user's.
      reason: the same for a reader, in a few words.
    """

    correct: bool | None
    answer: str | None
    rule: Rule | Literal["reward"]
    reason: str = ""


class Examiner:
    """Judges answers to one problem; its golds and its text are read once.

    Args:
      golds: accepted answers; any match counts.
      problem: the problem's text, or None: then nothing counts as copied, and no unit
        is asked for.
    """

    def __init__(self, golds: Sequence[str], problem: str | None = None):
        self._problem = problem or ""
        self._golds = [(gold, parse_answer(gold)) for gold in golds]

    def judge(self, answer: str | None) -> Verdict:
        """The verdict on an extracted answer; the same for the same arguments."""
        if answer is None:
            return Verdict(False, None, "no_answer", "has no box, or an empty one")
        parsed = self._without_what_is_asked(parse_answer(answer))
        budget = Budget()
        is_open = False
        for text, gold in self._golds:
            if answer == text or parsed.text == gold.text:
                return Verdict(True, answer, "text", "is written as the gold is")
            given, wanted = parsed, gold
            if self._problem:
                if not self._names_what_is_asked(parsed, gold, stems(text)):
                    continue
                given, wanted = _without_words(parsed, gold)
            if (
                (units := _units_of(parsed))
                and self._asked.units
                and _is_bare(gold.node)
            ):
                asked = [unit for unit in self._asked.units if unit.unit in units]
                wanted = _in_unit(wanted, (asked or self._asked.units)[0])
            prover = Prover(budget=budget)
            try:
                equal = same_answer(given, wanted, prover)
            except Open:
                is_open = True
                continue
            except Exception as fault:
                # Ours, whatever it is: nothing is shown, and nobody is credited.
                what = f"stopped at a fault of the verifier: {fault!r}"
                return Verdict(False, answer, "open", what)
            if equal:
                in_words = parsed.node is None or isinstance(parsed.node, Word)
                way = "text" if in_words else prover.way
                return self._finished(answer, parsed, gold, way)
            is_open = is_open or prover.is_open
        if all(gold.node is None and _is_math(gold) for _, gold in self._golds):
            reason = (
                f"the gold {self._golds[0][1].reason}" if self._golds else "no gold"
            )
            return Verdict(None, answer, "bad_gold", reason)
        if parsed.node is None:
            return Verdict(False, answer, "unreadable", parsed.reason)
        if is_open:
            return Verdict(False, answer, "open", "could not be shown equal in time")
        return Verdict(False, answer, "different", "is not what any gold is")

    def _names_what_is_asked(
        self, answer: Answer, gold: Answer, words: frozenset[str]
    ) -> bool:
        """Whether all the words for units are; another word may be an operation."""
        quantities = _quantities(answer)
        if not all(self._asked.allows(part.unit, words) for part in quantities):
            return False
        measured = any(isinstance(part.unit, str) for part in quantities)
        return not (measured and self._asked.things and _is_bare(gold.node))

    def _without_what_is_asked(self, answer: Answer) -> Answer:
        """Of `x + y = 17` the 17, where just `x + y` is asked for, as of any label."""
        match answer.node, answer.written:
            case Rel("=", _, node), Rel("=", left, written):
                named = _shape(left) in self._given_to_compute and symbols(left)
                copied = _shape(answer.written) in self._formulas
                if named and not copied and not is_label(left):
                    return dataclasses.replace(answer, node=node, written=written)
        return answer

    def _finished(self, answer: str, parsed: Answer, gold: Answer, way: Way) -> Verdict:
        if parsed.written is not None and gold.written is not None:
            if (left := _unfinished(parsed.written, gold.written)) is not None:
                return Verdict(False, answer, "unfinished", left)
            shape = _shape(gold.written)
            if _shape(parsed.written) != shape:
                copied = self._is_copied(parsed.written, shape)
                if copied and not self._is_respelled(parsed.written, gold.written):
                    return Verdict(False, answer, "echo", "stands in the problem")
        return Verdict(True, answer, way, _REASONS[way])

    def _is_copied(self, answer: Node, gold: Node) -> bool:
        """Whether an answer is a formula of the problem, or nothing but such ones."""
        for shape in (_shape(answer), _shape(fold(answer))):
            if not _is_plain(shape) and shape in self._formulas:
                return True
        match answer:
            case Rel() | Chain():
                stated = [
                    side
                    for side in _sides(answer)
                    if not is_label(side) and not is_decimal(side)
                ]
                copies = [
                    _shape(side) != gold and self._is_copied(side, gold)
                    for side in stated
                ]
                return bool(copies) and all(copies)
            case Braces((item,)) | Fn("abs", (item,)):
                return self._is_copied(item, gold)
        return False

    def _is_respelled(self, answer: Node, gold: Node) -> bool:
        """A half for 0.5, which the problem may well have among its numbers.

        Not where just this is to be rewritten: "Write $\\frac12$ as a decimal".
        """
        shape = _shape(answer)
        if not (_is_rational(shape) and _is_rational(_shape(gold))):
            return False
        return shape not in self._given_to_compute

    @functools.cached_property
    def _given_to_compute(self) -> frozenset[Node]:
        pieces = (match[0] for match in _TO_COMPUTE.finditer(self._problem))
        return frozenset(shape for piece in pieces for shape in formulas_of(piece))

    @functools.cached_property
    def _asked(self) -> Asked:
        return Asked(self._problem)

    @functools.cached_property
    def _formulas(self) -> frozenset[Node]:
        return frozenset(formulas_of(self._problem))


_REASONS: dict[Way, str] = {
    "text": "says the same in words",
    "number": "has the parts of the gold, number by number",
    "algebra": "equals the gold by exact algebra",
    "enclosure": "equals the gold to hundreds of digits",
}


def judge(
    completion: str, gold: str | Sequence[str], problem: str | None = None
) -> Verdict:
    r"""Whether a completion ends in a right and finished answer.

    Args:
      completion: the text of a reply; the answer is its last `\boxed{...}` that is in
        no other.
      gold: the accepted answer, or several of which any may match.
      problem: the problem's text. With it, an expression copied from the problem is no
        answer, and neither is a quantity in another unit than it asks for.
    """
    golds = (gold,) if isinstance(gold, str) else tuple(gold)
    return Examiner(golds, problem).judge(extract_answer(completion))


def _is_math(gold: Answer) -> bool:
    """Whether a gold that has no tree should have one: it is more than words."""
    return any(char in gold.text for char in "\\^_=<>{}") or not gold.text


def _unfinished(answer: Node, gold: Node) -> str | None:
    """What is still to be done, of a kind that is done in the gold."""
    for kind, name in _BIG_NAMES.items():
        if _leaves(answer, kind) and not _has_big(gold, kind):
            return f"leaves a {name} to be evaluated"
    if not contains(gold, Rel | Congruence | Interval | SetOp) or _solved(gold):
        if any(not _is_solved(part) for part in _relations(answer)):
            return "leaves a relation to be solved"
    return None


_BIG_NAMES = {"sum": "sum", "prod": "product", "int": "integral", "lim": "limit"}


def _has_big(node: Node, kind: str) -> bool:
    return any(isinstance(part, Big) and part.kind == kind for part in walk(node))


def _leaves(answer: Node, kind: str) -> bool:
    """Whether an answer says its value by such an expression only."""
    if isinstance(answer, Rel | Chain):
        said = [s for s in _sides(answer) if not isinstance(s, Sym | Call)]
        return bool(said) and all(_has_big(side, kind) for side in said)
    return _has_big(answer, kind)


def _relations(node: Node) -> Iterator[Rel | Chain]:
    """The relations that an answer states, not those inside its expressions."""
    if isinstance(node, Rel | Chain):
        yield node
    elif isinstance(node, Several | Braces | Tuple | SetOp):
        for part in children(node):
            yield from _relations(part)


def _solved(gold: Node) -> bool:
    """Whether all that a gold relates is a name to a constant."""
    return all(
        _is_solved(part) and any(not symbols(side) for side in _sides(part))
        for part in _relations(gold)
    )


def _sides(node: Rel | Chain) -> list[Node]:
    steps = steps_of(node)
    return [steps[0].left, *(step.right for step in steps)]


def _is_solved(node: Rel | Chain) -> bool:
    """x = 5, 2 < x < 3, x in A; also two names, and the exact beside the rounded.

    f(x) = 2x + 1 is solved for f: its arguments are bound, and only f may not recur.
    """
    if any(step.op == "equiv" for step in steps_of(node)):
        return True
    sides = list(map(fold, _sides(node)))
    named = [s for s in sides if is_label(s) or not isinstance(s, Expression)]
    if named:
        unknown = frozenset().union(*map(_unknowns, named))
        rest = [side for side in sides if side not in named]
        return len(named) > 1 or not any(_names_in(side) & unknown for side in rest)
    return not any(map(symbols, sides))


def _unknowns(label: Node) -> Set[str]:
    """What a label is about: its function, or its names where it has none."""
    function = function_of(label)
    if function is None or isinstance(label, Sym):
        return symbols(label)
    name, arguments = function
    own = {word.removesuffix("^-1") for word in name.split()}
    return own.union(*(_unknowns(a) for a in arguments if not isinstance(a, Sym)))


def _names_in(node: Node) -> Set[str]:
    """Names of variables and of functions."""
    calls = (part.name for part in walk(node) if isinstance(part, Call))
    return symbols(node).union(calls)


# --- units and words


def _units_of(answer: Answer) -> set[str]:
    """The known units that an answer names, perhaps behind a label or in letters."""
    units = map(_known_unit, _quantities(answer))
    return {unit.partition(" of ")[0] for unit in units if unit is not None}


def _quantities(answer: Answer) -> list[Quantity]:
    return [
        part
        for reading in filter(None, (answer.node, answer.other))
        for part in walk(reading)
        if isinstance(part, Quantity)
    ]


def _known_unit(quantity: Quantity) -> str | None:
    unit = quantity.unit
    return unit if isinstance(unit, str) else measure_in(unit)


def _in_unit(gold: Answer, unit: Reading) -> Answer:
    """A bare number, in the unit that was asked for: another unit is then wrong."""
    return dataclasses.replace(gold, node=Quantity(gold.node, unit.unit, unit.scale))


def _is_bare(node: Node | None) -> bool:
    """Whether it is a number without a unit or a mark."""
    marked = isinstance(node, Percent | Degrees)
    return isinstance(node, Expression) and not marked and not symbols(node)


def _counts(answer: Answer) -> bool:
    """Whether an answer has words for things."""
    return any(isinstance(part.unit, frozenset) for part in _quantities(answer))


def _without_words(answer: Answer, gold: Answer) -> tuple[Answer, Answer]:
    """Both, without the words for what is counted where only one of them has such."""
    if _counts(answer) != _counts(gold):
        return _without_things(answer), _without_things(gold)
    return answer, gold


def _without_things(answer: Answer) -> Answer:
    def bare(node: Node) -> Node:
        node = rebuilt(node, bare)
        if not isinstance(node, Quantity) or isinstance(node.unit, str):
            return node
        known = measure_in(node.unit)
        return node.value if known is None else Quantity(node.value, known, node.scale)

    readings = {"node": answer.node, "other": answer.other}
    return dataclasses.replace(
        answer, **{name: bare(node) for name, node in readings.items() if node}
    )


# --- copies


def formulas_of(problem: str) -> Iterator[Node]:
    """The shapes of all formulas of a problem, and of what they relate or list."""
    pieces = [next(filter(None, match)) for match in _FORMULA.findall(problem)]
    if not pieces:
        pieces = [match[0] for match in _BARE_FORMULA.finditer(problem)]
    for piece in pieces:
        parsed = parse_answer(piece)
        if parsed.written is None:
            continue
        stack = [parsed.written]
        while stack:
            node = stack.pop()
            yield _shape(node)
            yield _shape(fold(node))
            if isinstance(node, Rel | Chain | Several | Choice | Quantity):
                stack.extend(children(node))


_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]"
    r"|\\begin\{(?:align|equation|gather)\*?\}(.+?)\\end\{",
    re.DOTALL,
)
_TO_COMPUTE = re.compile(
    r"(?i)\b(?:simplify|compute|evaluate|calculate|reduce|express|write|rewrite|convert"
    r"|round|determine|find|give|work out|what is|what's|value of|equal to)\W+"
    r"(?:(?:the|a|an|following|exact|value|of|fraction|number|ratio|quotient|expression"
    r"|improper|mixed|common|decimal|each|to|terms?|form|simplest|lowest|in|as)\W+){0,6}"
    rf"(?:{_FORMULA.pattern})",
    re.DOTALL,
)
# In text without TeX: runs of numbers, letters and operators.
_BARE_FORMULA = re.compile(
    r"[\d.(]*(?:\d|\b[a-z]\b|\))(?:\s*[-+*/^=<>!]\s*[\d.(]*(?:\d|\b[a-z]\b|[)!]))+"
)


def _shape(node: Node) -> Node:
    """A tree as written, but for order, zeros, ones, units and which side is left."""
    node = rebuilt(node, _shape)
    match node:
        case Add(terms):
            flat = []
            for term in terms:
                flat += term.terms if isinstance(term, Add) else (term,)
            return _collected(Add, [t for t in flat if t != ZERO], ZERO)
        case Mul(factors):
            flat = []
            for factor in factors:
                flat += factor.factors if isinstance(factor, Mul) else (factor,)
            negative = flat.count(MINUS_ONE) % 2
            rest = [f for f in flat if f != ONE and f != MINUS_ONE]
            # A power of one alone is itself the formula.
            rest = [f for f in rest if not _is_one(f)] or rest
            if negative and len(rest) == 1 and isinstance(rest[0], Add):
                return _shape(Add(tuple(Mul((MINUS_ONE, t)) for t in rest[0].terms)))
            if negative and rest and isinstance(rest[0], Num):
                return _collected(Mul, [Num(-rest[0].value), *rest[1:]], ONE)
            return _collected(Mul, [MINUS_ONE] * negative + rest, ONE)
        case Pow(base, exponent) if exponent == ONE:
            return base
        case Pow(Pow(base, inner), outer) if inner == outer == MINUS_ONE:
            return base
        case Rel(op, left, right) if op in SYMMETRIC:
            return Rel(op, *sorted((left, right), key=repr))
        case Rel(">" | ">=" as op, left, right):
            return Rel({">": "<", ">=": "<="}[op], right, left)
        case Chain(steps) if all(s.op in (">", ">=", "<", "<=") for s in steps):
            return Chain(tuple(sorted(steps, key=repr)))
        case Several(items) | Braces(items):
            return type(node)(tuple(sorted(items, key=repr)))
        case Degrees(value) | Percent(value) | Quantity(value):
            return value
    return node


def _is_one(factor: Node) -> bool:
    """A factor or a denominator that changes nothing."""
    return factor == ONE or (isinstance(factor, Pow) and _is_one(factor.base))


def _collected(kind: type, parts: list[Node], empty: Node) -> Node:
    if len(parts) < 2:
        return parts[0] if parts else empty
    return kind(tuple(sorted(parts, key=repr)))


def _is_rational(shape: Node) -> bool:
    """One rational number as one writes it: 2, 0.5, -1/2."""
    match shape:
        case Num():
            return True
        case Mul(factors) if factors[0] == MINUS_ONE:
            return _is_rational(_collected(Mul, [*factors[1:]], ONE))
        case Mul((Num(), Pow(Num(), exponent))) | Mul((Pow(Num(), exponent), Num())):
            return exponent == MINUS_ONE
        case Pow(Num(), exponent):
            return exponent == MINUS_ONE
    return False


def _is_plain(shape: Node) -> bool:
    """A value as one writes it: nothing in it is left to be worked out."""
    match shape:
        case Num() | Sym() | Const() | Word() | Clock() | Date() | Numbers():
            return True
        case Mul(factors) if len(factors) == 2 and MINUS_ONE in factors:
            return all(map(_is_plain, factors))
        case Ratio(parts) | Call(_, parts):
            return all(map(_is_plain, parts))
    return False
