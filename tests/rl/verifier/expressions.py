"""Random closed expressions whose values are known from elsewhere.

Each is its TeX and a function that computes it by python-flint at the precision that
is set: nothing of the verifier is asked.
"""

import operator
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flint import arb, ctx, fmpz

TRUE_BITS = 8192


class Expression(NamedTuple):
    """What a policy may box, and the ball that surely holds its value."""

    tex: str
    compute: Callable[[], arb]

    @property
    def value(self) -> arb:
        with ctx.workprec(TRUE_BITS):
            return self.compute()


def surely_differ(left: Expression, right: Expression) -> bool:
    with ctx.workprec(TRUE_BITS):
        return not (left.value - right.value).contains(0)


def integer(value: int) -> Expression:
    return Expression(str(value), lambda: arb(fmpz(value)))


def _large(r: random.Random) -> tuple[str, int]:
    """An integer of 10 to 400 digits, as one writes it."""
    kind = r.randrange(4)
    if kind == 0:
        base, exponent = r.randint(2, 30), r.randint(20, 250)
        return f"{base}^{{{exponent}}}", base**exponent
    if kind == 1:
        n = r.randint(15, 150)
        return f"{n}!", int(fmpz.fac_ui(n))
    if kind == 2:
        a, b, c = r.randint(2, 4), r.randint(2, 4), r.randint(2, 4)
        return f"{a}^{{{b}^{{{c}}}}}", a ** (b**c)
    exponent, rest = r.randint(12, 90), r.randint(-9, 9) or 1
    return f"10^{{{exponent}}}{rest:+d}", 10**exponent + rest


def _of_a_large(r: random.Random) -> Expression:
    tex, n = _large(r)
    name = r.choice(["sin", "cos", "tan", "ln", "arctan", "log", "root", "cot"])
    if name == "log":
        base = r.randint(2, 12)
        return Expression(
            rf"\log_{{{base}}}({tex})", lambda: arb(fmpz(n)).log() / arb(base).log()
        )
    if name == "root":
        degree = r.randint(2, 7)
        return Expression(
            rf"\sqrt[{degree}]{{{tex}}}", lambda: arb(fmpz(n)).root(degree)
        )
    method = {"ln": "log", "arctan": "atan"}.get(name, name)
    return Expression(rf"\{name}({tex})", lambda: getattr(arb(fmpz(n)), method)())


def _cancelling(r: random.Random) -> Expression:
    n, k = r.randint(10**3, 10**12), r.randint(1, 9)
    if r.random() < 0.5:
        tex = rf"\sqrt{{{n}^2 + {k}}} - {n}"
        return Expression(tex, lambda: (arb(n) ** 2 + k).sqrt() - n)
    return Expression(
        rf"\ln({n + k}) - \ln({n})", lambda: arb(n + k).log() - arb(n).log()
    )


def _nested(r: random.Random) -> Expression:
    numbers = [r.randint(2, 40) for _ in range(r.randint(2, 4))]
    tex = rf"\sqrt{{{numbers[-1]}}}"
    for n in reversed(numbers[:-1]):
        tex = rf"\sqrt{{{n} + {tex}}}"

    def compute():
        value = arb(numbers[-1]).sqrt()
        for n in reversed(numbers[:-1]):
            value = (n + value).sqrt()
        return value

    return Expression(tex, compute)


def _counted(r: random.Random) -> Expression:
    if r.random() < 0.5:
        n = r.randint(8, 60)
        k = r.randint(2, n - 2)
        return Expression(rf"\binom{{{n}}}{{{k}}}", lambda: arb(fmpz.bin_uiui(n, k)))
    n, m = r.randint(5, 40), r.randint(3, 40)
    return Expression(
        rf"\frac{{{n}!}}{{{m}!}}", lambda: arb(fmpz.fac_ui(n)) / arb(fmpz.fac_ui(m))
    )


def _angle(r: random.Random) -> Expression:
    a, b = r.randint(1, 400), r.randint(7, 97)
    name = r.choice(["sin", "cos", "tan", "exp", "arctan"])
    if name == "exp":
        return Expression(rf"e^{{\frac{{{a}}}{{{b}}}}}", lambda: (arb(a) / b).exp())
    method = {"arctan": "atan"}.get(name, name)
    return Expression(
        rf"\{name}(\frac{{{a}}}{{{b}}})", lambda: getattr(arb(a) / b, method)()
    )


_KINDS = (_of_a_large, _of_a_large, _cancelling, _nested, _counted, _angle)


_JOINED: list[tuple[str, Callable[[arb, arb], arb]]] = [
    ("{0} + {1}", operator.add),
    ("({0}) - ({1})", operator.sub),
    (r"({0}) \cdot ({1})", operator.mul),
    (r"\frac{{{0}}}{{{1}}}", operator.truediv),
    (r"\ln(1 + ({0})^2)", lambda left, _: (1 + left**2).log()),
]


def expression(r: random.Random, depth: int = 2) -> Expression:
    """A closed real expression with a finite value that is not zero."""
    if depth == 0 or r.random() < 0.35:
        return r.choice(_KINDS)(r)
    left, right = expression(r, depth - 1), expression(r, depth - 1)
    tex, function = r.choice(_JOINED)
    found = Expression(
        tex.format(left.tex, right.tex),
        lambda: function(left.compute(), right.compute()),
    )
    value = found.value
    if value.is_finite() and not value.contains(0):
        return found
    return expression(r, depth)


def near_misses(e: Expression, r: random.Random) -> Iterator[Expression]:
    """Close to an expression in value, and surely not of its value."""
    k = r.randint(3, 200)
    yield Expression(f"{e.tex} + 10^{{-{k}}}", lambda: e.compute() + arb(10) ** -k)
    yield Expression(
        f"({e.tex})(1 + 10^{{-6}})", lambda: e.compute() * (1 + arb(10) ** -6)
    )
    yield Expression(
        rf"({e.tex}) \cdot 1.000001", lambda: e.compute() * arb("1.000001")
    )
    yield Expression(
        rf"{e.tex} + \sin(10^{{-{k % 40 + 5}}})",
        lambda: e.compute() + (arb(10) ** -(k % 40 + 5)).sin(),
    )
    yield Expression(f"-({e.tex})", lambda: -e.compute())
    if 10**-3 < abs(e.value) < 10**9:
        for digits in (15, 20, 30):
            other = _last_digit_changed(e, digits, r.choice((-1, 1)))
            # Seventeen digits may be off by one and still be what a machine prints.
            if other.tex != repr(float(e.value.mid())):
                yield other


def _floor(value: arb) -> int:
    return int(value.floor().unique_fmpz())


def _last_digit_changed(e: Expression, digits: int, step: int) -> Expression:
    with ctx.workprec(TRUE_BITS):
        # The floor of the middle, since the floor of a ball around an integer is not a
        # single number.
        value = e.value.mid()
        whole = len(str(_floor(abs(value))))
        places = max(digits - whole, 2)
        scaled = _floor((value * arb(10) ** places).mid() + arb(0.5))
    changed = scaled + step
    text = str(abs(changed)).rjust(places + 1, "0")
    sign = "-" if changed < 0 else ""
    return Expression(
        f"{sign}{text[:-places]}.{text[-places:]}",
        lambda: arb(fmpz(changed)) / arb(10) ** places,
    )


def identity(r: random.Random) -> tuple[Expression, Expression]:
    """Two spellings of one value."""
    a, b, n = r.randint(2, 30), r.randint(2, 30), r.randint(2, 120)
    k, e = r.randint(1, n), expression(r, 1)
    chosen = rf"\frac{{{n}!}}{{{k}! \cdot {n - k}!}}"
    exponential = rf"e^{{\ln(1 + ({e.tex})^2)}}"
    roots = rf"\sqrt{{{a}}} + \sqrt{{{b}}}"
    nested = rf"\sqrt{{{a + b} + 2\sqrt{{{a * b}}}}}"
    left, right, compute = r.choice(
        [
            (rf"\log_{{{a}}}({a}^{{{n}}})", f"{n}", lambda: arb(n)),
            (rf"\sin^2({e.tex}) + \cos^2({e.tex})", "1", lambda: arb(1)),
            (rf"\log_{{{a}}} {b} \cdot \log_{{{b}}} {a}", "1", lambda: arb(1)),
            (rf"\sqrt[5]{{{a**5}^{{{n}}}}}", f"{a}^{{{n}}}", lambda: arb(a) ** n),
            (f"({e.tex} + {a}) - {a}", e.tex, e.compute),
            (rf"\frac{{{a}({e.tex})}}{{\sqrt{{{a * a}}}}}", e.tex, e.compute),
            (rf"\frac{{1}}{{\frac{{1}}{{{e.tex}}}}}", e.tex, e.compute),
            (rf"\sin({a} + {2 * b}\pi)", rf"\sin {a}", lambda: arb(a).sin()),
            (rf"\ln({a}) + \ln({b})", rf"\ln({a * b})", lambda: arb(a * b).log()),
            (rf"\binom{{{n}}}{{{k}}}", chosen, lambda: arb(fmpz.bin_uiui(n, k))),
            (nested, roots, lambda: arb(a).sqrt() + arb(b).sqrt()),
            (exponential, f"({e.tex})^2 + 1", lambda: 1 + e.compute() ** 2),
        ]
    )
    return Expression(left, compute), Expression(right, compute)
