"""Converts the tree of an answer to sympy, for calculations outside the verifier."""

from collections.abc import Callable
from typing import Any

import sympy

from . import tree as t

_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_RENAMED: dict[str, Callable[..., Any]] = {
    "abs": sympy.Abs, "ceil": sympy.ceiling, "fact": sympy.factorial,
    "binom": sympy.binomial,
}  # fmt: skip
_RELATIONS: dict[str, Callable[..., Any]] = {
    "=": sympy.Eq, "equiv": sympy.Eq, "approx": sympy.Eq, "!=": sympy.Ne,
    "<": sympy.Lt, ">": sympy.Gt, "<=": sympy.Le, ">=": sympy.Ge,
}  # fmt: skip
_NUMBERS = {
    "Z": sympy.S.Integers, "N": sympy.S.Naturals, "N0": sympy.S.Naturals0,
    "Q": sympy.S.Rationals, "R": sympy.S.Reals, "C": sympy.S.Complexes,
    "Z+": sympy.S.Naturals, "R+": sympy.Interval.open(0, sympy.oo),
    "R-": sympy.Interval.open(-sympy.oo, 0),
}  # fmt: skip
_SET_OPERATIONS = {
    "cup": sympy.Union, "cap": sympy.Intersection, "minus": sympy.Complement
}  # fmt: skip


def to_sympy(node: t.Node) -> Any:
    """Returns the sympy object for a node; see `Answer.to_sympy` for errors."""
    match node:
        case t.Num(value) | t.Repeating(value) | t.Based(value=value):
            return sympy.Rational(value.numerator, value.denominator)
        case t.Word("otherwise"):
            return sympy.true
        case t.Sym(name) | t.Word(name):
            return sympy.Symbol(name)
        case t.Const(name):
            return _CONSTANTS[name]
        case t.Add() | t.Mul() | t.Pow() | t.Chain() | t.Tuple() | t.Ratio():
            return _JOINED[type(node)](*map(to_sympy, t.children(node)))
        case t.Fn(name, arguments):
            function = _RENAMED.get(name) or getattr(
                sympy, name.replace("arc", "a", 1) if name[:3] == "arc" else name
            )
            return sympy.sympify(function(*map(to_sympy, arguments)))
        case t.Call(name, arguments):
            return sympy.Function(name)(*map(to_sympy, arguments))
        case t.Degrees(value):
            return to_sympy(value) * sympy.pi / 180
        case t.Percent(value):
            return to_sympy(value) / 100
        case t.Quantity(value, unit, scale):
            name = unit if isinstance(unit, str) else " ".join(sorted(unit))
            size = sympy.Rational(scale.numerator, scale.denominator)
            return to_sympy(value) * size * sympy.Symbol(name, positive=True)
        case t.Clock(minutes, half):
            return sympy.Integer(minutes + 720 * (half == "pm"))
        case t.Several(items) | t.Braces(items):
            found = list(map(to_sympy, items))
            if found and all(isinstance(x, sympy.logic.boolalg.Boolean) for x in found):
                return sympy.Or(*found)
            return sympy.FiniteSet(*found)
        case t.Interval(low, high, low_closed, high_closed):
            ends = to_sympy(low), to_sympy(high)
            return sympy.Interval(*ends, not low_closed, not high_closed)
        case t.Numbers(letter) if letter in _NUMBERS:
            return _NUMBERS[letter]
        case t.SetOp(op, left, right):
            return _SET_OPERATIONS[op](_as_set(left), _as_set(right))
        case t.Rel("in" | "notin" as op, left, right):
            inside = sympy.Contains(to_sympy(left), _as_set(right))
            return inside if op == "in" else sympy.Not(inside)
        case t.Rel(op, left, right) if op in _RELATIONS:
            return _RELATIONS[op](to_sympy(left), to_sympy(right))
        case t.Matrix(width, cells):
            entries = list(map(to_sympy, cells))
            return sympy.Matrix(len(entries) // width, width, entries)
        case t.Cases(rows):
            pieces = [(to_sympy(row.value), to_sympy(row.condition)) for row in rows]
            return sympy.Piecewise(*pieces)
        case t.Choice(_, answer):
            return to_sympy(answer)
    raise ValueError(f"sympy has no {type(node).__name__} such as {node}")


def _power(base: Any, exponent: Any) -> Any:
    if base.is_negative and exponent.is_Rational and exponent.q > 1 and exponent.q % 2:
        return (-1) ** exponent.p * (-base) ** exponent
    return sympy.Pow(base, exponent)


_JOINED: dict[type, Callable[..., Any]] = {
    t.Add: sympy.Add, t.Mul: sympy.Mul, t.Pow: _power, t.Chain: sympy.And,
    t.Tuple: sympy.Tuple, t.Ratio: sympy.Tuple,
}  # fmt: skip


def _as_set(node: t.Node) -> Any:
    found = to_sympy(node)
    if isinstance(found, sympy.logic.boolalg.Boolean):
        return found.as_set()
    if isinstance(found, sympy.Tuple) and len(found) == 2:
        return sympy.Interval.open(*found)
    return found
