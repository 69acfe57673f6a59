"""Which answers can serve as golds."""

import pytest

from tools.curation.answers import against_solution, unverifiable_answer
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


def test_a_gold_that_says_where_its_boxes_go_is_none():
    gold = r"\boxed{2} \text{ and } \boxed{3}"
    fault = unverifiable_answer(Row(id="a", problem="?", answers=(gold,)))
    assert fault == f"{gold}: has no box, an empty one, or several"


@pytest.mark.parametrize(
    ("gold", "solution", "told"),
    [
        # The answer of another part: what a set of MIT's courses has where it was cut.
        ("6.2", r"The market clears at $\boxed{57}$.", "6.2: the solution says 57"),
        ("120", "<<5*25=125>>125 in all.\n#### 125", "120: the solution says 125"),
        ("x = 3", r"\boxed{x = -3}", "x = 3: the solution says x = -3"),
        ("0.5", r"so it is \boxed{\frac{1}{2}}", None),
        ("12 cm", r"\boxed{12}", None),
        ("19", r"\boxed{\textbf{(C)}\ 21}", "19: the solution says 21"),
        # One side of what the box relates: an option's letter, a step before.
        ("4.5", r"\boxed{\textbf{(C)}\ 4.5}", None),
        ("-5", r"\boxed{\textbf{(C)} \ -5}", None),
        (r"\sqrt{3}", r"\boxed{(\textbf{A}) \: \sqrt{3}}", None),
        (r"\frac{5}{3}", r"\boxed{\frac{5}{3}\rightarrow \text{(B)}}", None),
        ("17", r"\boxed{a+b+c = 17}", None),
        # What does not say which value: a letter, ways or parts, words, no end.
        ("4.5", r"\boxed{C}", None),
        ("4.5", r"\boxed{\textbf{(C)}}", None),
        ("3, 5", r"\boxed{3} for the first, \boxed{5} for the other", None),
        ("170", r"Case 1: \fbox{110}. Case 2: \fbox{60}.", None),
        ("7", r"\boxed{\text{see the proof above}}", None),
        ("7", "The rest is left to the reader.", None),
        ("7", "", None),
    ],
)
def test_a_solution_that_ends_at_another_value_speaks_against_its_gold(
    gold, solution, told
):
    row = Row(id="a", problem="?", answers=(gold,), solution=solution)
    assert against_solution(row) == told


def test_any_of_several_golds_may_be_what_the_solution_ends_at():
    row = Row(id="a", problem="?", answers=("1", "2"), solution=r"\boxed{2}")
    assert against_solution(row) is None
