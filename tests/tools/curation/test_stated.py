"""Golds that their own problem refutes, and golds of which it says nothing for sure."""

import pytest

from tools.curation.answers import AnswerJudge
from tools.curation.stated import refuted


@pytest.mark.parametrize(
    ("problem", "gold"),
    [
        (r"Compute $\dbinom{20}{5}$.", "11628"),
        (r"Simplify: $\frac{k^{2}-12 k+32}{k^{2}-64}$", r"\frac{k-8}{k+4}"),
        ("Evaluate the expression $9(6 b+5)-4 b(b+3)$", "-42 b-45-4 b^{2}"),
        (r"Compute $\tan 40^\circ + 4 \sin 40^\circ.$", r"\sqrt{3}"),
        ("Solve the equation: $x + 3 = 19$", "11"),
        ("Solve: $(3 x-2)^{2}=64$", r"-2, \frac{11}{3}"),
        ("If $3 x + 2 = 11$, then the value of $x$ is ____?", r"\frac{1}{5}"),
        ("If $x = 4$ and $x^2 - 3 x + c = 0$, then $c$ = ____ ?", "-1"),
        (r"If $\alpha = 35^\circ$ and $\alpha + \beta = 90^\circ$, find $\beta$", "65"),
        (r"Compute $180^\circ - 45^\circ$", "125"),
        (r"Find $\arcsin 1$", "45"),
        (r"Given \(x = 3\) and \(y = 5\), what is \(3x^4 + 2y^2\)?", "292"),
    ],
)
def test_what_the_problem_states_refutes_the_gold(problem, gold):
    assert refuted(problem, gold) is not None


@pytest.mark.parametrize(
    ("problem", "gold"),
    [
        # right
        (r"Compute $\dbinom{20}{5}$.", "15504"),
        ("Solve: $(3 x-2)^{2}=64$", r"x = -2 \text{ or } x = \frac{10}{3}"),
        ("If $x = 4$ is a root of $x^2 - 3 x + c = 0$, then $c$ = ____ ?", "c = -4"),
        # degrees without their sign
        (r"If $\alpha = 35^\circ$ and $\alpha + \beta = 90^\circ$, find $\beta$", "55"),
        (r"If $a = 35$ and $a + b = 90$, find $b$", r"55^\circ"),
        (r"Compute $180^\circ - 45^\circ$", "135"),
        (r"Find $\arcsin 1$", "90"),
        (r"Compute $\sin 30$", "1/2"),
        (r"If $x = 30$, find $\sin x$", "1/2"),
        # lines of a drawing, of which no point lies on all
        ("The region bounded by $y = 0$, $x = 1$ and $y = kx^2$ has area 1. Find $k$",
         "3"),
        # a count, a factored form, a list, an expression of which nothing is known
        ("Compute $8C3$", "56"),
        ("Evaluate $P_5^2$", "20"),
        ("Factor $x^2-5x+6=0$", "(x-2)(x-3)"),
        ("Solve: $x^2-235x+234=0$", "1,234"),
        ("Find $x+y$", "5"),
        ("If $1+1=3$ and $2+2=6$, find $4+4$", "12"),
        ("If $2+3=10$ and $8+4=x$, find $x$", "96"),
        (r"Simplify $(x^2)^{1/2}$", "x"),
        # the letter is not what is asked for
        ("What is the sum of all $x$ with $x^2 = 16$?", "0"),
        ("If $(x+2)(x-3)=14$, find the product of all possible values of $x$.", "-20"),
        ("Let $n = 2^{5}$. How many divisors has $n$?", "6"),
        ("Use what you know to find $40^2$.", "81"),
        # in one case this, in another that; a letter that nothing is known of
        ("If $y=16$ when $x=1$, and $y=3$ when $x=2$, then $y$ equals:", "4"),
        ("If $2x + 6 = 16$, what is $x + 4$?", "9"),
        ("The numbers -1, a, b, -4 are in a line; find $b - a$.", "-1"),
        ("Given x = 3 and y = 2, find $4x - y$.", "10"),
        # rounded, or read in two ways
        (r"Find the value of $\cos 71^{\circ}$", "0.3256"),
        (r"What is $1 + 2 + \cdots + 17$?", "153"),
        (r"Simplify $\sqrt{512 a^{4} b^{2}}$", r"16 a^{2} b \sqrt{2}"),
        (r"Solve $\log(x^2 - 3x) = 1$", "-2, 5"),
        (r"Calculate: $11 \frac{1}{9} - 3$", r"\frac{73}{9}"),
        (r"Compute $\frac{\cos 40^\circ}{\cos 25^\circ \sqrt{1-\sin 40^\circ}}$",
         r"\sqrt{2}"),
        ("If $A*B$ means the mean of both, then what is $3*5$?", "4"),
        ("An ellipse has foci at 1 and 3; then $e=$ ____.", r"\frac{1}{2}"),
        # no value
        ("Solve $x^2 = 4$.", r"(-\infty, 2]"),
        ("Compute $2 + $.", "4"),
    ],
)  # fmt: skip
def test_what_is_not_shown_says_nothing(problem, gold):
    assert refuted(problem, gold) is None


def test_a_worker_names_the_formula():
    asked = "Solve the equation: $x + 3 = 19$"
    with AnswerJudge(workers=1, timeout=10.0) as judge:
        found = judge.faults([("16", asked), ("11", asked), (r"\frac{1}{", asked)])
    assert found[0] is None
    assert found[1] == ("gold_refuted", "11: not so in x + 3 = 19")
    assert found[2][0] == "unverifiable_answer"
