"""What sympy is asked, in a process that may be killed while it thinks."""

import functools
from typing import Any

import sympy

from rl.verifier.tree import Node

_DIGITS = 30
_SMALL = 1e-18


def decide(left: Node, right: Node) -> bool | None:
    """Whether two expressions are equal; None where sympy does not know."""
    try:
        difference = (_to_sympy(left) - _to_sympy(right)).doit()
        if difference == 0:
            return True
        if difference.free_symbols:
            return sympy.simplify(difference) == 0
        value = complex(difference.evalf(_DIGITS))
        return abs(value) < _SMALL if value == value else None
    except Exception:
        # sympy raises whatever its algorithms meet; no verdict is all that follows.
        return None


def _to_sympy(node: Node) -> Any:
    match node:
        case ("num", value, _):
            return sympy.Rational(value.numerator, value.denominator)
        case ("sym", name):
            return sympy.Symbol(name)
        case ("const", name):
            constants = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
            return constants[name]
        case ("add", *parts):
            return sympy.Add(*map(_to_sympy, parts))
        case ("mul", *parts):
            return sympy.Mul(*map(_to_sympy, parts))
        case ("pow", base, exponent):
            return sympy.Pow(_to_sympy(base), _to_sympy(exponent))
        case ("deg", part):
            return _to_sympy(part) * sympy.pi / 180
        case ("percent", part):
            return _to_sympy(part) / 100
        case ("call", name, *parts):
            return sympy.Function(name)(*map(_to_sympy, parts))
        case ("fn", name, *parts):
            return _functions()[name](*map(_to_sympy, parts))
        case ("big", name, index, lower, upper, body):
            body, index = _to_sympy(body), _to_sympy(index)
            if name == "lim":
                return sympy.limit(body, index, _to_sympy(lower))
            kinds = {"sum": sympy.Sum, "prod": sympy.Product, "int": sympy.Integral}
            return kinds[name](body, (index, _to_sympy(lower), _to_sympy(upper)))
    raise ValueError(f"no sympy form of {node[0]}")


@functools.cache
def _functions() -> dict[str, Any]:
    named = {
        "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot",
        "arcsec": "asec", "arccsc": "acsc", "abs": "Abs", "ceil": "ceiling",
        "sgn": "sign", "fact": "factorial", "fact2": "factorial2",
        "binom": "binomial", "max": "Max", "min": "Min",
    }  # fmt: skip
    plain = "sin cos tan cot sec csc sinh cosh tanh coth sech csch log floor gcd lcm"
    names = {name: name for name in plain.split()} | named
    return {name: getattr(sympy, theirs) for name, theirs in names.items()}
