"""The last resort: sympy, on a tree that is ours, never on text.

Only limits, integrals, infinite sums and what is undefined at every numeric probe get
here. sympy may take for ever on any of them, so it runs in a process that is killed at
a deadline: one helper of this process or, inside a pool's worker, the worker itself.
"""

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

from rl.verifier import tree
from rl.verifier.child import Child
from rl.verifier.tree import Node

DEADLINE_SECONDS = 0.4
_MAX_SIZE = 150
_MAX_BITS = 200
_HEAVY = frozenset({"fact", "fact2", "binom"})
_DIGITS = 30
_SMALL = 1e-18


def agree(left: Node, right: Node) -> bool | None:
    """Whether two expressions are equal to sympy.

    Returns:
      None where it does not know, where they are too large for it, or where it took
      longer than the deadline.
    """
    if not (_is_worth_it(left) and _is_worth_it(right)):
        return None
    if _Helper.in_this_process:
        return _decide(left, right)
    return _Helper.ask(left, right)


def start_helper() -> None:
    """Starts the helper ahead, so that its start is no item's time."""
    if not _Helper.in_this_process:
        _Helper.start()


def work_in_this_process() -> None:
    """For a process that somebody else kills at a deadline: imports sympy aside."""
    _Helper.in_this_process = True
    threading.Thread(
        target=importlib.import_module, args=("sympy",), daemon=True
    ).start()


def judge_expressions(left: Node) -> Callable[[Node], bool | None]:
    """What the helper runs."""
    return functools.partial(_decide, left)


class _Helper:
    """The one sympy process of this process."""

    in_this_process = False
    _lock = threading.Lock()
    _child: Child | None = None

    @classmethod
    def start(cls) -> Child:
        if cls._child is None:
            cls._child = Child("rl.verifier.symbolic:judge_expressions")
        return cls._child

    @classmethod
    def ask(cls, left: Node, right: Node) -> bool | None:
        with cls._lock:
            try:
                child = cls.start()
                child.await_ready()
                child.send(left, (right,))
                return child.receive(DEADLINE_SECONDS)
            except (TimeoutError, EOFError, OSError):
                if cls._child is not None:
                    cls._child.kill()
                cls._child = None
                cls.start()
                return None


def _is_worth_it(node: Node) -> bool:
    """No constants that numbers could not settle, nothing that is large."""
    if tree.size(node) > _MAX_SIZE:
        return False
    stack = [node]
    while stack:
        part = stack.pop()
        if part[0] == "num" and part[1].numerator.bit_length() > _MAX_BITS:
            return False
        if part[0] == "fn" and part[1] in _HEAVY and not tree.symbols(part):
            return False
        if part[0] == "pow" and part[2][0] == "pow" and not tree.symbols(part):
            return False
        stack.extend(child for child in part if isinstance(child, tuple))
    return True


def _decide(left: Node, right: Node) -> bool | None:
    import sympy

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
    import sympy

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
    import sympy

    named = {
        "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot",
        "arcsec": "asec", "arccsc": "acsc", "abs": "Abs", "ceil": "ceiling",
        "sgn": "sign", "fact": "factorial", "fact2": "factorial2",
        "binom": "binomial", "max": "Max", "min": "Min",
    }  # fmt: skip
    plain = "sin cos tan cot sec csc sinh cosh tanh coth sech csch log floor gcd lcm"
    names = {name: name for name in plain.split()} | named
    return {name: getattr(sympy, theirs) for name, theirs in names.items()}
