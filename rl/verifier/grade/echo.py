"""Finds answers that are copied from the problem."""

import re
from collections.abc import Iterator

from ..equal.prover import Prover
from ..parse import tree as t
from ..parse.answers import parse_answer
from .canonical import holds, is_plain, is_rational, shape_of
from .completeness import sides


class Formulas:
    """Finds copies of a problem's formulas; `trees` has the tree for each shape."""

    def __init__(self, problem: str):
        pieces = [match[0] for match in _TO_COMPUTE.finditer(problem)]
        pieces += [match[1] for match in _BARE_SUM.finditer(problem)]
        self.trees = dict(_formulas_of(problem))
        self.to_compute = {shape for p in pieces for shape, _ in _formulas_of(p)}
        self.to_rewrite = _TO_REWRITE.search(problem) is not None

    def contained_in(self, answer: t.Node, gold: t.Node, prover: Prover) -> bool:
        """Returns whether an answer is a formula of the problem, or contains one.

        Only a contained formula with the gold's value counts. An answer with the gold's
        shape is never a copy.
        """
        shape = shape_of(answer)
        if shape == shape_of(gold):
            return False
        parts = list(t.walk(shape))
        prover.charge(len(parts) * len(self.trees))
        return self.match(answer, gold, prover) or any(
            holds(parts, formula) and self._has_value(formula, gold, prover)
            for formula in self.trees
            if not is_rational(formula) or formula in self.to_compute
        )

    def match(self, answer: t.Node, gold: t.Node, prover: Prover) -> bool:
        """Returns whether an answer consists only of formulas of the problem."""
        match answer:
            case t.Ratio((top, bottom)) if not t.contains(gold, t.Ratio):
                answer = t.Mul((top, t.Pow(bottom, t.MINUS_ONE)))
                if shape_of(answer) == shape_of(gold):
                    return False
        shapes = [shape_of(answer), shape_of(t.fold(answer))]
        if (valued := _valued(answer, prover)) != answer:
            shapes += [shape_of(valued), shape_of(t.fold(valued))]
        if not any(map(self._is_made_of_formulas, shapes)):
            return False
        # For a gold of 0.5, 1/2 may be repeated if it is not to be rewritten.
        shape = shape_of(answer)
        numbers = is_rational(shape) and is_rational(shape_of(gold))
        return not numbers or shape in self.to_compute

    def _is_made_of_formulas(self, shape: t.Node) -> bool:
        if shape in self.trees:
            return not is_plain(shape)
        if not isinstance(shape, t.Several | t.Braces | t.SetOp):
            return False
        parts = [p for p in t.children(shape) if not isinstance(p, t.Numbers)]
        values = any(isinstance(p, t.Rel) and _gives_a_value(p) for p in parts)
        return bool(parts) and not values and all(map(self._is_made_of_formulas, parts))

    def _has_value(self, formula: t.Node, gold: t.Node, prover: Prover) -> bool:
        value, wanted = t.fold(self.trees[formula]), t.fold(gold)
        if is_plain(formula) or formula == shape_of(gold):
            return False
        if not (isinstance(value, t.Expression) and isinstance(wanted, t.Expression)):
            return False
        return prover.equal(value, wanted)


def _gives_a_value(relation: t.Rel) -> bool:
    return relation.op == "=" and all(map(is_plain, t.children(relation)))


def _valued(node: t.Node, prover: Prover) -> t.Node:
    """Replaces functions and powers of numbers by their values, if integers."""

    def integer(part: t.Node) -> t.Node:
        part = t.rebuilt(part, integer)
        if isinstance(part, t.Fn | t.Pow) and not part.names:
            whole = t.number(round(prover.balls.fraction(t.fold(part)) or 0))
            if prover.equal(t.fold(part), whole):
                return whole
        return part

    return integer(node)


def _formulas_of(problem: str) -> Iterator[tuple[t.Node, t.Node]]:
    """Yields (shape, tree) for each formula; the shape is of the tree or its `fold`."""
    pieces = [next(filter(None, match)) for match in _FORMULA.findall(problem)]
    if not pieces:
        pieces = [match[0] for match in _BARE_FORMULA.finditer(problem)]
    for piece in pieces:
        parsed = parse_answer(piece.rstrip("? "))
        if parsed.written is None:
            continue
        stack = [parsed.written]
        while stack:
            node = stack.pop()
            yield shape_of(node), node
            folded = shape_of(t.fold(node))
            if not (isinstance(folded, t.Rel) and _gives_a_value(folded)):
                yield folded, node  # 408 = x solves 17 * 24 = x
            whole = t.Rel | t.Chain | t.Several | t.Choice | t.Quantity
            if isinstance(node, t.Chain) and any(s.op != "=" for s in node.steps):
                stack.extend(sides(node))  # a < x alone does not copy a < x < b
            elif isinstance(node, whole):
                stack.extend(t.children(node))
            elif isinstance(node, t.Braces) and t.contains(node, t.Rel):
                stack.extend(t.children(node))


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
# Matches "Find m+n" without TeX.
_BARE_SUM = re.compile(
    r"(?i)\b(?:find|compute|determine|evaluate|what is)\s+([a-z](?:\s*[-+]\s*[a-z])+)\b"
)
_TO_REWRITE = re.compile(
    r"(?i)factori[sz]|\b(?:as|in)\W+(?:\w+\W+){0,4}(?:powers?|product|exponential|index)\b"
)
# Matches runs of numbers, letters and operators in text without TeX.
_BARE_FORMULA = re.compile(
    r"[\d.(]*(?:\d|\b[a-z]\b|\))(?:\s*[-+*/^=<>!]\s*[\d.(]*(?:\d|\b[a-z]\b|[)!]))+"
)
