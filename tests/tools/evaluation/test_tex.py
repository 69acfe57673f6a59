import pytest

from tools.evaluation.tex import formula, to_html

PAIRS = ["$ $", r"\( \)", "$$ $$", r"\[ \]"]


@pytest.mark.parametrize("pair", PAIRS)
def test_formulas_become_mathml(pair):
    shown = to_html("is " + pair.replace(" ", r"\frac{1}{2}") + ".")
    assert shown.startswith("is <math") and shown.endswith("</math>.")
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>" in shown
    assert "frac{" not in shown


def test_money_is_no_formula():
    text = "It costs $5 and then $6, or $5-$6."
    assert to_html(text) == text


def test_what_is_no_tex_stays_as_it_is():
    assert to_html("a $x^{$ b") == "a $x^{$ b"
    assert formula("x^{") == "x^{"


def test_nothing_in_a_text_becomes_markup():
    nasty = "<script>alert(1)</script> $a<b$ $\\text{<b>}$ \\(</math><script>\\)"
    shown = to_html(nasty)
    assert "<script" not in shown and "<b>" not in shown
    assert shown.count("<math") == shown.count("</math>") == 3
