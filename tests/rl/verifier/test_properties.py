"""Random expressions: rewritten by identities equal, perturbed not equal."""

import string
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from rl.verifier import extract_answer, is_equivalent, self_check

_integers = st.integers(-30, 30)
_letters = st.sampled_from("abxyz")
_atoms = st.one_of(
    _integers.map(lambda n: f"({n})"),
    _letters,
    st.sampled_from([r"\pi", r"\sqrt{2}", r"\sqrt{15}", r"\frac{3}{7}", "2.5"]),
)


def _grown(parts):
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda p: f"({p[0]} + {p[1]})"),
        pairs.map(lambda p: f"({p[0]} - {p[1]})"),
        pairs.map(lambda p: rf"{p[0]} \cdot {p[1]}"),
        st.tuples(parts, st.integers(2, 4)).map(lambda p: f"({p[0]})^{{{p[1]}}}"),
        st.tuples(parts, st.integers(2, 9)).map(
            lambda p: rf"\frac{{{p[0]}}}{{{p[1]}}}"
        ),
        parts.map(lambda p: rf"\sin({p})"),
    )


_expressions = st.recursive(_atoms, _grown, max_leaves=6)
_REWRITINGS = [
    lambda e: f"0 + {e}",
    lambda e: rf"1 \cdot {e}",
    lambda e: f"({e}) - 3 + 3",
    lambda e: rf"\frac{{2({e})}}{{2}}",
    lambda e: f"-(-({e}))",
    lambda e: rf"({e})(\sin^2 t + \cos^2 t)",
    lambda e: rf"({e}) \cdot \frac{{\sqrt{{8}}}}{{2\sqrt{{2}}}}",
    lambda e: f"({e} + q)({e} - q) - ({e})^2 + q^2 + {e}",
    lambda e: rf"\left( {e} \right)",
    lambda e: f"${e}$",
]
_PERTURBATIONS = [
    lambda e: f"{e} + 1",
    lambda e: f"2({e}) + 7",
    lambda e: rf"{e} + \frac{{1}}{{1000000}}",
    lambda e: f"{e} + q",
    lambda e: rf"{e} - \pi",
]


@settings(max_examples=150, deadline=None)
@given(_expressions, st.sampled_from(_REWRITINGS))
def test_rewritten_is_equal(expression, rewrite):
    rewritten = rewrite(expression)
    assert is_equivalent(rewritten, expression)
    assert is_equivalent(expression, rewritten)


@settings(max_examples=150, deadline=None)
@given(_expressions, st.sampled_from(_PERTURBATIONS))
def test_perturbed_is_not_equal(expression, perturb):
    perturbed = perturb(expression)
    if perturbed == f"2({expression}) + 7" and is_equivalent(expression, "-7"):
        return
    assert not is_equivalent(perturbed, expression)
    assert not is_equivalent(expression, perturbed)


@settings(max_examples=150, deadline=None)
@given(st.fractions(max_denominator=1000), st.fractions(max_denominator=1000))
def test_rationals_agree_with_fractions(left, right):
    def spelled(value: Fraction) -> str:
        sign = "-" if value < 0 else ""
        return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"

    assert is_equivalent(spelled(left), f"{right.numerator}/{right.denominator}") == (
        left == right
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(_integers, min_size=2, max_size=6), st.randoms())
def test_lists_have_no_order_and_tuples_have_one(values, random):
    shuffled = values[:]
    random.shuffle(shuffled)
    plain, other = (", ".join(map(str, v)) for v in (values, shuffled))
    assert is_equivalent(plain, other)
    assert is_equivalent(f"({plain})", f"({other})") == (values == shuffled)
    assert not is_equivalent(plain, f"({plain})")


@settings(max_examples=100, deadline=None)
@given(_integers, st.integers(1, 40), st.booleans(), st.booleans())
def test_an_interval_is_its_inequality(low, width, low_closed, high_closed):
    high = low + width
    interval = f"{'[' if low_closed else '('}{low},{high}{']' if high_closed else ')'}"
    left, right = (r"\le" if c else "<" for c in (low_closed, high_closed))
    assert is_equivalent(interval, f"{low} {left} x {right} {high}")
    assert not is_equivalent(interval, f"{low} {left} x {right} {high + 1}")
    flipped = "<" if low_closed else r"\le"
    assert not is_equivalent(interval, f"{low} {flipped} x {right} {high}")


_pieces = st.sampled_from(
    [r"\frac", "{", "}", "(", ")", "[", "]", "^", "_", "1", "23", "x", r"\sqrt", ",",
     "=", "<", r"\pm", r"\text{", "and", " ", r"\pi", "%", r"\%", "$", r"\{", r"\}",
     "|", "!", "e", "i", r"\infty", r"\cup", "-", "+", "/", ".", "°", "½", "cm",
     r"\sin", r"\log_", "&", "\\\\", ":", ";", "…", "'", r"\sum_{k=1}^{3}", r"\in",
     r"\overline"]
)  # fmt: skip
_texts = st.one_of(
    st.lists(_pieces, max_size=14).map("".join),
    st.text(string.printable, max_size=40),
    st.text(max_size=40),
)


@settings(max_examples=600, deadline=None)
@given(_texts, _texts)
def test_any_text_is_judged_alike_in_both_directions(left, right):
    assert is_equivalent(left, left)
    assert is_equivalent(left, right) == is_equivalent(right, left)
    assert self_check(left) != "does not equal itself"
    extract_answer(left + r"\boxed{" + right)
