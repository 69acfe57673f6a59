"""Verdicts on random pairs against sympy's evaluation of both to 60 digits."""

import random
from collections.abc import Callable

import pytest
import sympy

from rl.verifier import is_equivalent
from rl.verifier.parse import tree
from rl.verifier.parse.answers import parse_answer

_DIGITS = 60
_X = {sympy.Symbol(name): sympy.Rational(n, 7) for n, name in enumerate("xyn", 9)}


def _number(r: random.Random, depth: int = 2) -> str:
    """A closed positive expression."""
    n, m = r.randint(2, 9), r.randint(2, 9)
    if depth == 0:
        return r.choice([str(n), f"{n}.{m}", rf"\frac{{{n}}}{{{m}}}", r"\pi", "e"])
    a, b = _number(r, depth - 1), _number(r, depth - 1)
    return r.choice(
        [
            f"({a}+{b})", f"({a})({b})", rf"\frac{{{a}}}{{{b}}}", f"({a})^{{{m}}}",
            rf"\sqrt{{{a}}}", rf"\sqrt[3]{{{a}}}", f"|{a}-{b}|", rf"\ln(1+{a})",
            rf"\sin^2({a})", rf"\arctan({a})", rf"\binom{{{n + m}}}{{{n}}}", f"{n}!",
            rf"\lfloor {n}{m}/7\rfloor ",
        ]
    )  # fmt: skip


def _formula(r: random.Random) -> str:
    a, b = _number(r, 1), _number(r, 0)
    return r.choice(
        [f"{a}x+{b}", f"(x+{b})({a}+y)", f"x^2-{b} y", rf"\frac{{x+{a}}}{{y}}"]
    )


_KINDS: dict[type, Callable[[random.Random], str]] = {
    tree.Add: lambda r: f"{_number(r)}+{_number(r, 1)}",
    tree.Mul: _formula,
    tree.Pow: lambda r: f"(x+{_number(r, 1)})^{r.randint(2, 4)}",
    tree.Fn: lambda r: rf"\cos({_number(r, 1)})",
    tree.Degrees: lambda r: rf"{r.randint(1, 300)}^\circ",
    tree.Percent: lambda r: rf"{r.randint(1, 300)}\%",
    tree.Based: lambda r: f"{r.choice([101, 211, 1021])}_{r.randint(3, 9)}",
    tree.Tuple: lambda r: f"({_number(r)},{_formula(r)},{r.randint(1, 9)})",
    tree.Several: lambda r: f"{_number(r, 1)}, {_formula(r)}",
    tree.Braces: lambda r: rf"\{{{_number(r, 1)}, {_number(r, 0)}, 17\}}",
    tree.Interval: lambda r: f"[-{_number(r, 1)},{_number(r)})",
    tree.SetOp: lambda r: rf"(-\infty,-{_number(r, 0)})\cup[{_number(r, 0)},\infty)",
    tree.Rel: lambda r: f"z={_formula(r)}",
    tree.Chain: lambda r: rf"-{_number(r, 1)}<x\le {_number(r, 0)}",
    tree.Matrix: lambda r: (
        rf"\begin{{pmatrix}}{_number(r)}&1\\2&{_formula(r)}\end{{pmatrix}}"
    ),
    tree.Quantity: lambda r: rf"{r.randint(1, 9)}\text{{ {r.choice(['cm', 'm'])}}}",
    tree.Ratio: lambda r: f"{r.randint(1, 9)}:{r.randint(60, 99)}",
    tree.Choice: lambda r: rf"\text{{(B) }} {_number(r)}",
}
_RESPELLED = [
    lambda t: t.replace(r"\frac", r"\dfrac"),
    lambda t: t.replace("x+", "x + 0 + "),
    lambda t: t.replace(r"\pi", r"\frac{2\pi}{2}"),
    lambda t: t.replace(r"\sqrt{", r"1\cdot\sqrt{"),
    lambda t: t.replace("+", r"\cdot1+"),
]


def _values(found) -> object:
    """What sympy makes of an object: its kind and its numbers, to 60 digits."""
    if isinstance(found, sympy.MatrixBase):
        return found.shape, [_values(x) for x in found]
    if isinstance(found, sympy.Interval):
        ends = [_values(found.start), _values(found.end)]
        return ends, found.left_open, found.right_open
    if isinstance(found, sympy.FiniteSet):
        return sorted(map(_values, found))
    if isinstance(found, sympy.Expr) and not found.has(sympy.oo, -sympy.oo):
        value = sympy.N(found.subs(_X).doit(), _DIGITS, strict=False)
        return str(sympy.N(value, 50))
    if found.args:
        return type(found).__name__, sorted(str(_values(x)) for x in found.args)
    return str(found)


def _of_kind(kind: type, text: str) -> bool:
    node = parse_answer(text).written
    return node is not None and tree.contains(node, kind)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
def test_a_verdict_is_what_sympy_evaluates(kind):
    r = random.Random(kind.__name__)
    wrong, equal = [], 0
    for _ in range(12):
        left = _KINDS[kind](r)
        assert _of_kind(kind, left), left
        right = r.choice(_RESPELLED)(left) if r.random() < 0.6 else _KINDS[kind](r)
        a, b = (parse_answer(text).to_sympy() for text in (left, right))
        if kind is tree.Ratio:
            a, b = (x[0] / x[1] for x in (a, b))
        said = is_equivalent(left, right)
        equal += said
        if said != (_values(a) == _values(b)):
            wrong.append((left, right, said))
    assert wrong == []
    assert 0 < equal
