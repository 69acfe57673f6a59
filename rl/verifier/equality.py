"""Equality of two expressions: exact first, then by numbers, then by sympy."""

from fractions import Fraction

from rl.verifier import modular, numeric, symbolic, tree
from rl.verifier.tree import Node

FULL_PRECISION_DIGITS = 14
"""A decimal of so many significant digits is a printed float: it stands for the exact
number that it agrees with."""
APPROXIMATE_DIGITS = 4
_MAX_TERMS = 60
_INFINITE = frozenset({tree.INFINITY, tree.negative(tree.INFINITY)})


def equal(left: Node, right: Node, decimals: bool = False) -> bool:
    """Whether two expressions are equal wherever both are defined.

    Args:
      left: an expression without plus-minus.
      right: another one.
      decimals: also accept a decimal of at least four significant digits for the exact
        number that it rounds, or cuts off.
    """
    if left == right:
        return True
    if left[0] == "num" and right[0] == "num":
        return left[1] == right[1] or _rounds(left, right, decimals)
    if left in _INFINITE or right in _INFINITE:
        return False
    left, right = _expand_sums(left), _expand_sums(right)
    verdict = _same_image(left, right)
    if verdict is None:
        verdict = numeric.agree(left, right)
    if verdict is None:
        verdict = symbolic.agree(left, right)
    return bool(verdict) or _rounds(left, right, decimals)


def _same_image(left: Node, right: Node) -> bool | None:
    try:
        return modular.evaluate(left) == modular.evaluate(right)
    except (modular.Inexact, ZeroDivisionError):
        return None


def proportional(left: Node, right: Node, *, positive: bool = False) -> bool:
    """Whether one expression is a constant, not zero, times the other.

    Args:
      left: an expression that depends on a variable.
      right: another one.
      positive: whether the constant must be positive.
    """
    verdict = _proportional_images(left, right) if not positive else None
    return (
        verdict if verdict is not None else _proportional_values(left, right, positive)
    )


def _proportional_images(left: Node, right: Node) -> bool | None:
    try:
        a = [modular.evaluate(left, salt) for salt in (0, 1, 2)]
        b = [modular.evaluate(right, salt) for salt in (0, 1, 2)]
    except (modular.Inexact, ZeroDivisionError):
        return None
    if not any(a) or not any(b):
        return not any(a) and not any(b)
    return all((a[0] * b[k] - a[k] * b[0]) % modular.P == 0 for k in (1, 2))


def _proportional_values(left: Node, right: Node, positive: bool) -> bool:
    ratios = []
    for point in range(5):
        try:
            a, scale_a = numeric.evaluate(left, point)
            b, scale_b = numeric.evaluate(right, point)
        except numeric.Undefined:
            continue
        if abs(a) <= 1e-30 * scale_a or abs(b) <= 1e-30 * scale_b:
            return False
        ratios.append(a / b)
    if len(ratios) < 2 or positive and ratios[0] < 0:
        return False
    return all(abs(ratio - ratios[0]) < 1e-30 * abs(ratio) for ratio in ratios)


def is_zero(node: Node) -> bool:
    return equal(node, tree.ZERO)


def linear_root(node: Node, name: str) -> Node | None:
    """Where an expression that is linear in a variable vanishes; None if it is not."""
    variable = ("sym", name)
    at = [
        tree.substitute(node, {variable: tree.number(value)}) for value in (0, 1, 2, 5)
    ]
    slope = tree.add(at[1], tree.negative(at[0]))
    for value, step in ((at[2], 2), (at[3], 5)):
        expected = tree.add(at[0], tree.mul(tree.number(step), slope))
        if not equal(value, expected):
            return None
    if is_zero(slope):
        return None
    return tree.negative(tree.divide(at[0], slope))


def _expand_sums(node: Node) -> Node:
    """Writes out short sums and products with constant bounds."""
    if not tree.contains(node, frozenset({"big"})):
        return node
    if node[0] == "big" and node[1] in ("sum", "prod"):
        _, name, index, lower, upper, body = node
        if lower[0] == upper[0] == "num" and lower[1].denominator == 1:
            if 0 <= upper[1] - lower[1] <= _MAX_TERMS and tree.size(body) < 100:
                steps = range(int(lower[1]), int(upper[1]) + 1)
                terms = [
                    _expand_sums(tree.substitute(body, {index: tree.number(step)}))
                    for step in steps
                ]
                return tree.add(*terms) if name == "sum" else tree.mul(*terms)
        return node
    parts = [_expand_sums(part) if isinstance(part, tuple) else part for part in node]
    build = {"add": tree.add, "mul": tree.mul, "pow": tree.power}.get(node[0])
    return build(*parts[1:]) if build else tuple(parts)


def _rounds(left: Node, right: Node, decimals: bool) -> bool:
    """Whether one side is the other one, as a decimal, to the digits that it shows."""
    for decimal, exact in ((left, right), (right, left)):
        if decimal[0] != "num" or decimal[2] is None:
            continue
        ulp = decimal[2]
        digits = len(str(abs(decimal[1] / ulp).numerator))
        if digits < (APPROXIMATE_DIGITS if decimals else FULL_PRECISION_DIGITS):
            continue
        if exact[0] == "num" and (
            exact[2] is not None or (exact[1] / ulp).denominator == 1
        ):
            # Another decimal, or a number that so many digits could show exactly.
            continue
        if (value := _exact_value(exact)) is None:
            continue
        error = value - decimal[1]
        cut_off = 0 <= error * (1 if decimal[1] > 0 else -1) < ulp
        if abs(error) <= ulp / 2 or cut_off:
            return True
        if digits > FULL_PRECISION_DIGITS and abs(error) <= 2 * ulp:
            return True
    return False


def _exact_value(node: Node) -> Fraction | None:
    """A real constant as a fraction, good to 45 digits."""
    if node[0] == "num":
        return node[1]
    if tree.symbols(node):
        return None
    try:
        value, _ = numeric.evaluate(node)
    except numeric.Undefined:
        return None
    if isinstance(value, numeric.context.mpc) or abs(numeric.context.mag(value)) > 999:
        return None
    sign, mantissa, exponent, _ = value._mpf_
    size = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -size if sign else size
