"""Which answers can serve as golds."""

from tools.curation.answers import unverifiable_answer
from tools.curation.row import Row


def test_what_only_its_own_text_equals_is_no_gold():
    finite = [
        r"\sum_{k=1}^{10} k^{2}",
        r"\int_{0}^{1} x^{2} dx",
        r"[0, \infty)",
        r"\lim_{n \to \infty} S_{n} = \frac{8}{3}",
    ]
    endless = [
        r"\sum_{n=0}^{\infty}(n+1) x^{n}, R=1",
        r"y=C+\prod_{k=1}^{\infty}\left(1+x^{k}\right)",
        r"\int_{-\infty}^{0} f(x) dx",
        r"\lim_{n \to \infty} a_{n}",
    ]
    faults = [
        unverifiable_answer(Row(id=gold, problem="?", answers=(gold,)))
        for gold in finite + endless
    ]
    assert faults[:4] == [None] * 4
    for gold, fault in zip(endless, faults[4:], strict=True):
        assert fault.startswith(gold[:20]) and "without end" in fault, (gold, fault)
