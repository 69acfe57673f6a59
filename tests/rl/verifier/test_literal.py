"""A literal gold asks for a literal answer: nothing is left to be calculated."""

import pytest

from rl.verifier import VerifierPool, is_equivalent, judge
from rl.verifier.grade.contract import UNEVALUATED
from tests.rl.verifier.pairs import Row, labelled

# Rows of a gold, answers that leave nothing to be calculated, and answers that do.
_ROWS: list[Row] = [
    ("72", ["72.0", "48+24=72", "x=72"], [r"48+\frac{48}{2}", r"48\cdot1.5"]),
    ("5", [], [r"(13\cdot5/13)", r"\frac{65}{13}", "65/13"]),
    ("3", [r"\lg 1000"], [r"\sqrt{9}"]),
    ("1,2", [], [r"\frac{3\pm\sqrt{9-8}}{2}", "x/x, 2"]),
    ("0.75", [], ["0.5+0.25"]),
    (r"\frac34", [r"\frac68", "0.75"], [r"\frac12+\frac14"]),
    (r"25\%", ["25"], [r"5\cdot5\%"]),
    ("118098", [], [r"2\cdot3^{10}"]),
    ("7", [], ["(7^{-1})^{-1}"]),
    (r"5 \text{ cm}", [], [r"(2+3) \text{ cm}"]),
    ("(1,2)", ["(1.0,2)"], ["(2-1,2)"]),
    (r"\{1,2\}", [], [r"\{3-2,2\}"]),
    ("8", [], [r"\frac{80}{10}"]),
    ("x=5", [], ["x=2+3"]),
    (r"\sqrt{13}", [], [r"\sqrt{9+4}"]),
    (r"6\sqrt2", [], [r"2\cdot3\sqrt2"]),
    ("1680", [], ["8!/24"]),
    (r"\frac{49}8", [], [r"\frac{2}{(4/7)^2}"]),
    ("84.5", [], [r"84+5\cdot10^{-1}"]),
    (r"\pi", [], [r"12\pi\cdot\frac1{12}"]),
    (r"\frac\pi2", [], [r"\frac\pi4+\frac\pi4"]),
    ("i", [], ["i+-i+i"]),
    ("9+11i", [], [r"2(8+\frac{13}2i)-(7+2i)"]),
    ("2x", [], ["(x+10)-(10-x)"]),
    ("2x^2-18", [], ["2(x^2-3^2)"]),
    (r"\frac1{2-x}", [], [r"\frac{\frac x{1-x}+1}{\frac x{1-x}+2}"]),
    ("n=1", [], ["x/x", "n!/n!"]),
    ("0", [], [r"(\pi-\pi)^2"]),
    ("2600", ["2.6e3"], [r"26\cdot10^2"]),
    ("-2600", [r"-2.6\cdot10^3"], [r"-0.26\cdot10^4"]),
    (r"8\sqrt2", [], [r"\sqrt{18}+\sqrt{50}"]),
    (r"\sqrt2", [], [r"\frac{\sqrt2}2+\frac1{\sqrt2}"]),
    ("0.026", [r"26\times10^{-3}"], []),
    ("250000", [r"250\times10^3"], []),
    ("(3,4),(5,12)", [r"(x,y)\in\{(3,4),(5,12)\}"], []),
    (r"\frac{2m_1g}{2m_1+M}", [r"\frac{m_1g}{m_1+\frac{M}{2}}"], []),
    (r"\frac{c^2(u+v)}{c^2+uv}", [r"\frac{u+v}{1+\frac{uv}{c^2}}"], []),
    (r"\frac{2}{2s+1}", [r"\frac{1}{s+\frac12}"], []),
    ("y=2x+1", ["y=2(x-1)+3"], []),
    (r"2\pi(\pi+1)", [r"2\pi^2+2\pi"], []),
    ("-5", ["-5"], []),
    ("3.5", [r"3\frac12", r"\frac{7}{2}"], []),
    ("2000", [r"2\cdot10^3"], []),
    ("0.002", [r"2\times10^{-3}"], []),
    (r"-4.5\times10^{33}", [r"-45\times10^{32}"], []),
    ("4.5e33", [r"45\times10^{32}"], []),
    (r"\sqrt2+2\sqrt3", [r"\sqrt{12}+\sqrt2"], []),
    ("3125", ["5^5"], []),
    ("120", ["5!"], []),
    ("10", [r"\binom52"], []),
    (r"\frac1{1024}", [r"\frac{1}{2^{10}}"], []),
    ("5000000", [r"5 \text{ million}"], []),
    ("3:4", ["6:8"], []),
    (r"\pm3", ["3,-3"], []),
    ("1", [r"\sin 90^\circ"], []),
    ("24", [r"2 \text{ dozen}"], []),
    (r"2\sqrt3", [r"\sqrt{12}"], []),
    (r"-\frac14", ["(-1)/4"], []),
    ("9!", ["9!"], []),
    (r"\frac{\sqrt3}3", [r"\frac1{\sqrt3}"], []),
    (r"8\pi-16", [r"2(4\pi-8)"], []),
    (r"\frac{9\pi}2", [r"4.5\pi"], []),
    (r"60\text{ mph}", [r"60\ \frac{\text{mi}}{\text{h}}"], []),
    ("2x-y+1=0", ["y=2x+1"], []),
    ("N=n", ["n"], []),
    (r"\begin{pmatrix}2t\\t\end{pmatrix}", ["(2t,t)"], []),
    (r"(-\infty,a)\cup(b,\infty)", [r"x<a \text{ or } x>b"], []),
    ("a+1<x<b", [r"x \in (a+1,b)"], []),
    (r"\text{cat}", ["cat"], []),
    ("(B) 5", ["B"], []),
    (r"9\pi", [r"9 \cdot \pi"], []),
    (r"30^\circ", [r"\frac{\pi}{6}"], []),
]


@pytest.mark.parametrize(("gold", "answer", "finished"), labelled(_ROWS))
def test_nothing_is_left_to_be_calculated(gold, answer, finished):
    verdict = judge(rf"\boxed{{{answer}}}", gold)
    if finished:
        assert verdict.correct, verdict
        return
    assert (verdict.correct, verdict.rule) == (False, "unfinished"), verdict
    assert is_equivalent(answer, gold)
    assert judge(rf"\boxed{{{answer}}}", gold, literal=False).correct


def test_a_pool_counts_what_is_left():
    items = [(r"\boxed{48+24}", ["72"], None), (r"\boxed{72}", ["72"], None)]
    with VerifierPool(1, timeout=20) as pool:
        first, second = pool.judge(items)
        assert (first.reason, second.correct) == (UNEVALUATED, True)
        assert (pool.counts["unevaluated"], pool.counts["unfinished"]) == (1, 1)
    with VerifierPool(1, timeout=20, literal=False) as pool:
        assert all(verdict.correct for verdict in pool.judge(items))
