"""Dress says nothing: every gold, in every wrapper, is what it was."""

import random
import re
from fractions import Fraction

import pytest

from rl.verifier import is_equivalent
from tests.rl.verifier.measure import rows
from tests.rl.verifier.pairs import misjudged

# Markup and words around a gold, which is written @.
_AROUND = [
    r"\,@\,", r"\!@\!", r"\quad @\qquad", r"\ @\ ", r"\:@\;", "~@~", " \n @\n",
    r"\hspace{1em}@", "$@$", "$$@$$", r"\(@\)", r"\[ @ \]", r"\displaystyle @",
    r"\displaystyle{@}", r"{\textstyle @}", r"\large @", r"{\Huge @}", r"\small{@}",
    r"\normalsize @", r"\color{red}{@}", r"{\color{blue} @}", r"\textcolor{red}{@}",
    r"\colorbox{yellow}{@}", r"\underline{@}", r"\underline{\underline{@}}",
    r"\mathbf{@}", r"\boldsymbol{@}", r"\bm{@}", r"\ensuremath{@}", "{@}", r"\boxed{@}",
    r"\fbox{@}", "{}@{}", r"\phantom{x}@", r"\mathstrut @", r"@ \checkmark", "@ ✓",
    "@.", r"@\text{.}", "@。", r"@ \blacksquare", "@\\\\", r"\therefore @", "**@**",
    r"\text{The answer is } @", r"\text{Answer: }@",
]  # fmt: skip
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")


def _places(value: Fraction, places: int = 3) -> str:
    return f"{float(round(value, places)):.{places}f}"


def _value(gold: str) -> Fraction | None:
    match = _FRACTION.fullmatch(gold)
    if match is None or not int(match[3]):
        return None
    value = Fraction(int(match[2]), int(match[3])) * (-1 if match[1] else 1)
    return value if abs(value) > Fraction(1, 20) else None


def _of_numbers(form):
    return lambda gold: form(gold) if _NUMBER.fullmatch(gold) else None


def _of_fractions(form):
    def wrapped(gold):
        value = _value(gold)
        return None if value is None else form(gold, value)

    return wrapped


def _replaced(old, new):
    return lambda gold: gold.replace(old, new) if old in gold else None


def _thousands(gold):
    return f"{int(gold):,}" if "." not in gold and len(gold) > 4 else None


_FORMS = {
    **{
        text: _of_numbers(lambda g, text=text: text.replace("@", g))
        for text in (
            *(r"\text{@}", r"\textbf{@}", r"\mathrm{@}", "x = @", r"\text{Area} = @"),
            r"@ \text{ units}",
        )
    },
    "plus sign": _of_numbers(lambda g: None if g[0] == "-" else f"+{g}"),
    "decimals of zero": _of_numbers(lambda g: None if "." in g else f"{g}.00"),
    "thousands": _of_numbers(_thousands),
    "thousands of TeX": _of_numbers(
        lambda g: (_thousands(g) or "").replace(",", "{,}") or None
    ),
    "full width": _of_numbers(
        lambda g: g.translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789"})
    ),
    "plain fraction": _of_fractions(lambda g, v: f"{v.numerator}/{v.denominator}"),
    "brackets that grow": _of_fractions(lambda g, v: rf"\left( {g} \right)"),
    "approximately": _of_fractions(lambda g, v: rf"{g} \approx {_places(v)}"),
    "unicode approximately": _of_fractions(lambda g, v: f"{g} ≈ {_places(v)}"),
    "display fractions": _replaced(r"\frac", r"\dfrac"),
    "small fractions": _replaced(r"\frac", r"\tfrac"),
    "brackets sized": lambda g: (
        re.sub(r"(?<![\w\\])\(", r"\\bigl(", g) if g.startswith("(") else None
    ),
}


def _in_math(gold: str) -> str | None:
    if gold.startswith("$") and gold.endswith("$") and len(gold) > 1:
        gold = gold.strip("$").strip()
    return None if "$" in gold.replace(r"\$", "") else gold


@pytest.fixture(scope="module")
def golds(shared_data):
    """Every gold of the six sets, each once, and 300 of training rows."""
    found = set()
    for path in sorted((shared_data / "eval").glob("*.jsonl")):
        if path.stem != "svamp1000":
            found.update(*(row["answers"] for row in rows(path)))
    train = rows(shared_data / "train" / "deepscaler_levels.jsonl")
    answers = sorted({str(row["answer"]) for row in train} - {"", "None"})
    found.update(random.Random(0).sample(answers, 300))
    found = {gold for gold in map(_in_math, found) if gold and len(gold) < 400}
    # As plain as the wrappers of numbers ask for, and all that is more than a number.
    numbers = sorted(gold for gold in found if re.fullmatch(r"-?\d+", gold))
    return numbers[::4] + sorted(found - set(numbers))


@pytest.mark.parametrize("name", [*_AROUND, *_FORMS])
def test_wrapper(golds, name):
    """At least 99% of the golds that it applies to; each gold alone equals itself."""
    if name in _AROUND:
        wrapped = {gold: name.replace("@", gold) for gold in golds}
    else:
        wrapped = {gold: _FORMS[name](gold) for gold in golds}
        wrapped = {gold: text for gold, text in wrapped.items() if text is not None}
    assert len(wrapped) >= 15
    missed = [
        (gold, text) for gold, text in wrapped.items() if not is_equivalent(text, gold)
    ]
    assert len(missed) <= 0.01 * len(wrapped), missed[:10]


def test_rows_say_the_same_in_every_environment():
    system = [
        r"\begin{aligned}x&=1\\y&=2\end{aligned}",
        r"\begin{aligned}x&=1\\[4pt]y&=2\end{aligned}",
        r"\begin{align*}x&=1,\\ y&=2.\end{align*}",
        r"\begin{matrix}x=1\\y=2\end{matrix}",
        r"\begin{gathered}x=1\\y=2\end{gathered}",
        r"\left\{\begin{array}{l}x=1\\y=2\end{array}\right.",
        r"\left\{\begin{aligned}x&=1\\y&=2\end{aligned}\right.",
        r"\begin{array}{rcl}x&=&1\\y&=&2\end{array}",
        r"\begin{cases}x=1,\\y=2.\end{cases}",
        r"\begin{cases}x&=1\\y&=2\end{cases}",
        r"x=1,\quad y=2",
    ]
    cases = [
        r"\begin{cases}x+1,&\text{if }x\ge0\\x-1,&\text{if }x<0\end{cases}",
        r"\begin{cases}x+1\text{ if }x\ge0\\x-1\text{ if }x<0\end{cases}",
        r"\begin{cases}x+1&\text{for }x\ge0,\\[2pt]x-1&x<0.\end{cases}",
        r"\begin{cases}x+1 \text{ if } x\ge0\\x-1 \text{ if } x<0\end{cases}",
        r"\left\{\begin{array}{ll}x+1&x\ge0\\x-1&x<0\end{array}\right.",
    ]
    vector = r"\left(\begin{array}{c}1\\[4pt]2\end{array}\right)"
    rows = [
        ("x=1, y=2", system, []),
        ("x=1, y=3", [], system),
        ("x=2, y=1", [], system),
        (r"\begin{cases}x+1&x\ge0\\x-1&x<0\end{cases}", cases, []),
        (r"\begin{cases}x+1&x<0\\x-1&x\ge0\end{cases}", [], cases),
        ("5", [r"\begin{array}{c}5\end{array}"], []),
        ("3", [r"\begin{aligned}x&=1+2\\&=3\end{aligned}"], []),
        ("3", [], [r"\begin{aligned}x&=1+2\\&=4\end{aligned}"]),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", [vector], []),
        ("12", [], [r"1\quad 2"]),
        ("1, 2", [], [r"1\quad 3"]),
    ]
    assert misjudged(rows) == []
