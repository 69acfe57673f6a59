"""An answer does not leave the problem's last step to the verifier."""

import functools

import pytest

from rl import verifier
from rl.verifier import Examiner, is_equivalent

# The rules of a problem, without that of literal golds (`test_literal`).
judge = functools.partial(verifier.judge, literal=False)

_DUCKS = (
    "Janet's ducks lay 16 eggs per day. She eats three for breakfast and bakes muffins"
    " with four. She sells the rest for $2 per egg. How much does she make a day?"
)
_DET = r"Find the determinant of $\begin{pmatrix}1&2\\3&4\end{pmatrix}$."
_SETS = r"Let $A=\{1,2,3,4\}$ and $B=\{2,3,5\}$. What are $A\cap B$ and $A\cup B$?"
# Rows of an answer, its gold and the problem.
CREDITED: dict[str, list[tuple[str, ...]]] = {
    "an evaluated answer, or one without a simpler form, is accepted": [
        (r"\log_4 9", r"\log_2 3", "Solve $2^x = 3$."),
        (r"2\ln 2", r"\ln 4", "Solve $e^x = 4$."),
        ("|x-5|", "|5-x|", "How far is $x$ from 5?"),
        (r"e^{x \ln 2}", "2^x", "Which function is it?"),
        (r"2\sin 15^\circ", r"2\cos 75^\circ", "How long is the side?"),
        (r"2(\cos 60^\circ + i \sin 60^\circ)", r"2e^{i\pi/3}", "Give the root."),
    ],
    "sets whose union is not simpler are an answer": [
        (r"A\cap B=\{2,3\}", r"\{2,3\}", _SETS),
        (r"(-\infty,0)\cup\{1\}", r"a<0 \text{ or } a=1", "For which $a$?"),
        (r"\mathbb{R}\setminus\{1\}", r"x\ne1", "Where is it defined?"),
        (r"\mathbb{R}\setminus[-1,1]", r"(-\infty,-1)\cup(1,\infty)", "Where?"),
        (r"(0,5)\setminus\{3\}", r"(0,3)\cup(3,5)", "Where is it defined?"),
        (r"\{1,2\}\cup\{3\}", r"\{3\}\cup\{1,2\}", "As the gold has it."),
        (r"x\in\{1,2,3\}", "1,2,3", "Which whole numbers are they?"),
    ],
    "evaluated answers are accepted in a list or with a unit": [
        (r"\{18\}", "18", _DUCKS),
        (r"x \in \{9 \times 2\}", "18", _DUCKS),
        ("3-2=1, 3+2=5", "1, 5", "Which two differ from 3 by 2?"),
        (r"(2, \frac{6}{2})", "(2,3)", "From (1,2) to (3,4), halved?"),
        (r"1.5\text{ hours}", "90", "How many minutes does it take?"),
        ("1024", "2^{10}", "How many subsets has a set of ten?"),
        ("1024", "2^{10}", "There are 1024 players. How many pairings are there?"),
        (r"30\text{ minutes}", r"\frac12\text{ hour}", "It is 30 km at 60 km/h."),
        (r"150\text{ minutes}", "150", "It lasts 150 minutes. How long, in minutes?"),
        (r"\frac{1}{4}", r"25\%", "What percent of 12 is 3?"),
        (r"25\%", r"\frac14", "Which part of 12 is 3?"),
        (r"2\text{ hours}", r"120\text{ minutes}", "Two taps fill a tub. How long?"),
        ("3:4", r"\frac34", "There are 3 boys and 4 girls. What is their ratio?"),
        ("2:1", "2", "There are 2 boys for each girl. What is their ratio?"),
        (r"\frac12\begin{pmatrix}1&-2\\-1&4\end{pmatrix}",
         r"\begin{pmatrix}\frac12&-1\\-\frac12&2\end{pmatrix}",
         r"Find the inverse of $\begin{pmatrix}4&2\\1&1\end{pmatrix}$."),
        (r"(C)\ \sqrt5", "C", r"Which is it? (A) 1 (B) 2 (C) $\sqrt5$"),
    ],
    "a partly evaluated expression is accepted": [
        (r"9 \times 2", "18", _DUCKS),
        ("340 + 68", "408", r"What is $17 \cdot 20 + 17 \cdot 4$?"),
        (r"7 \cdot 6", "42", "What is $6 + 36$?"),
        (r"10 \cdot 9", "90", r"What is $\frac{10!}{8!}$?"),
        (r"2 \cdot 3^{10}", "118098", "There are 2 of 3 in 10."),
        (r"\binom{10}{3} \cdot 2^7", "15360", "There are 3 of 10, 2 and 7."),
        (r"\binom{10}{3}", "120", "How many ways to choose 3 of 10?"),
        (r"\frac{10 \cdot 9}{2}", "45", "10 people shake hands in twos."),
        ("10! - 8!", "3588480", "There are 10, of which 8 are red."),
        ("2^{10}", "1024", "How many subsets has a set of 10?"),
        (r"\frac{6}{8}", r"\frac34", "6 of 8 are red. Which part is it?"),
        (r"2+\frac14", r"2\frac14", r"It is 2 and $\frac14$."),
        (r"100-\frac12", "99.5", "How long is it?"),
        ("e^2+1", "1+e^2", "What is $f(2)$ for $f(x) = e^x + 1$?"),
    ],
    "in its notation or unasked it is an answer": [
        ("x = 1253_6", "1253_6", "Express the base 10 number 321 in base 6."),
        ("(1253)_{6}", "1253_6", "Express the base 10 number 321 in base 6."),
        ("321", "321_{10}", "What is the number 1253 of base 6 in base ten?"),
        ("321_{10}", "321", "What is the number 1253 of base 6 in base ten?"),
        ("0.45", r"\frac{9}{20}", "It is 9 of 20. Answer as a common fraction."),
        (r"0\le x<3", "[0,3)", "It ends at 3. Answer in decimal form."),
        ("0.5", r"\frac12", "Heads has probability 0.5. And tails?"),
        (r"\frac{18}{40}", r"\frac{9}{20}", "Express 0.45 as a common fraction."),
        (r"52\times10^{-5}", r"5.2\times10^{-4}", "Write it in scientific notation."),
        ("225", r"225^\circ", r"Convert $\frac{5\pi}{4}$ to degrees."),
    ],
    "a label leaves no arithmetic": [
        ("x = 5", "5"),
        ("5 = x", "5"),
        ("x = 2 + 3 = 5", "5"),
        ("S = 55", "55"),
        (r"\text{Area} = 12", "12"),
        (r"x \in (0, 1)", "0 < x < 1"),
        (r"x \le 3", r"(-\infty, 3]"),
        ("x = 1, y = 2", "(1, 2)"),
        (r"x = \frac13 \approx 0.333", r"\frac13"),
    ],
    "the arguments of a function are bound": [
        ("f(x) = 2x + 1", "2x + 1"),
        ("P(x) = 2x + 1 = 1 + 2x", "2x + 1"),
        ("S(n) = n^2", "n^2"),
        ("f'(x) = 2x", "2x"),
        (r"f^{-1}(x) = \frac{x-1}{2}", r"\frac{x-1}{2}"),
        ("f(g(x)) = 2x", "2x"),
        ("f(f(x)) = x", "x"),
        (r"\frac{dy}{dx} = 2x", "2x"),
        ("y(t) = e^{-t}", "e^{-t}"),
        ("f(x,y) = x + y", "x + y"),
        (r"f(x) = \begin{cases} x & x > 0 \\ -x & x < 0 \end{cases}",
         r"\begin{cases} x & x > 0 \\ -x & x < 0 \end{cases}"),
        (r"A^{-1} = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
         r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    ],
    "it is accepted where the gold is of that kind": [
        ("x^2 + y^2 - 1 = 0", "x^2 + y^2 = 1"),
        ("y - 2x = 1", "y = 2x + 1"),
        ("2x + 3y = 6", "4x + 6y = 12"),
        (r"a + b \le c", r"c \ge a + b"),
    ],
}  # fmt: skip
UNFINISHED: dict[str, list[tuple[str, ...]]] = {
    "a function of numbers must be evaluated": [
        (r"\lfloor \sqrt{2023} \rfloor", "44", "Which integer is below it?"),
        (r"\lceil 3.2 \rceil", "4", "Round 3.2 up."),
        ("|3+4i|", "5", "Find the magnitude of $3-4i$."),
        (r"\log_2 1024", "10", "What is the base-2 logarithm of 1024?"),
        (r"\sin 390^\circ", r"\frac12", r"Compute $\sin 30^\circ$."),
        (r"4\sin 15^\circ", r"\sqrt6-\sqrt2", "How long is the side?"),
    ],
    "a number of the problem is not rewritten by the verifier": [
        ("321", "1253_6", "Express the base 10 number 321 in base 6."),
        ("x = 321", "1253_6", "Express the base 10 number 321 in base 6."),
        ("45", "101101_2", "Convert 45 to binary."),
        ("0.45", r"\frac{9}{20}", "Express 0.45 as a common fraction."),
        (r"0.3636\ldots", r"\frac{4}{11}", r"Write $0.\overline{36}$ as a fraction."),
        ("0.00052", r"5.2\times10^{-4}", "Write 0.00052 in scientific notation."),
        (r"225^\circ", r"\frac{5\pi}{4}", r"Convert $225^\circ$ to radians."),
        ("3/4", "0.75", "Write 3/4 as a decimal."),
        ("x = 0.45", r"\frac{9}{20}", "Express 0.45 as a common fraction."),
        ("0.45:1", r"\frac{9}{20}", "Express 0.45 as a common fraction."),
        (r"45\%", r"\frac{9}{20}", "Express 0.45 as a common fraction."),
        ("1253_6", "321", "What is the number 1253 of base 6 in base ten?"),
    ],
    "an operation on sets must be worked out": [
        (r"\{1,2,3,4\}\cap\{2,3,6\}", r"\{2,3\}", _SETS),
        (r"\{1,2,3,4\}\cup\{3,5\}", r"\{1,2,3,4,5\}", _SETS),
        (r"\{1,2,3,4\}\setminus\{2,3\}", r"\{1,4\}", _SETS),
        (r"(0,3)\cap(1,4)", "(1,3)", "Where do $(0,3)$ and $(1,5)$ meet?"),
        (r"(0,3)\cup(2,5)", "(0,5)", "Join $(0,3)$ and $(1,5)$."),
        (r"(0,3)\setminus(1,4)", "(0,1]", "What is left of $(0,3)$?"),
        (r"(-\infty,1)\cup\{1\}", r"x\le1", "Solve it."),
        (r"\{x:x>1\}\cap\{x:x<3\}", "(1,3)", "Solve it."),
    ],
}
_MADE = r"(16-3-4) \times 2"
CALCULATED: dict[str, list[tuple[str, ...]]] = {
    "a calculation that the problem states is refused": [
        (r"17 \cdot 23 + 17", "408", r"What is $17 \cdot 24$?"),
        (r"(20-3) \cdot 24", "408", r"What is $17 \cdot 24$?"),
        (r"\frac{34 \cdot 24}{2}", "408", r"What is $17 \cdot 24$?"),
        (r"x = 16 \cdot 24 + 24", "408", "What is 17 * 24?"),
        (r"5 \cdot 4!", "120", "Compute $5!$."),
        (r"(16-3-4) \times 2", "18", _DUCKS),
        (r"\$(16-3-4) \times 2", "18", _DUCKS),
        (r"1 \cdot 4 - 2 \cdot 3", "-2", _DET),
        (r"\frac{12}{4}", "3", "He shares 12 sweets among 4 friends."),
        (r"0.15 \cdot 80", "12", "How much is 15% of 80?"),
    ],
    "numbers of the problem are refused in a list or with a unit": [
        (r"(\frac{1+3}{2}, \frac{2+4}{2})", "(2,3)",
         "From (1,2) to (3,4), halved by 2?"),
        ("3-2, 3+2", "1, 5", "Which two differ from 3 by 2?"),
        ("[3-2, 3+2]", "[1,5]", r"Solve $|x-3| \le 2$."),
        (r"\{0.45\}", r"\frac{9}{20}", "Express 0.45 as a common fraction."),
        (r"7.8\text{ minutes}", "468", "How many seconds are 7.8 minutes?"),
        (r"1\text{ square foot}", "144",
         "How many square inches are in 1 square foot?"),
        (r"72\text{ km/h}", r"20\text{ m/s}", "Convert 72 km/h to m/s."),
        (r"\begin{pmatrix}1\cdot5+2\cdot7\\3\cdot5+4\cdot7\end{pmatrix}",
         r"\begin{pmatrix}19\\43\end{pmatrix}",
         r"Multiply $\begin{pmatrix}1&2\\3&4\end{pmatrix}$ by $(5, 7)^T$."),
        ("360", r"2^3\cdot3^2\cdot5", "What is the prime factorization of 360?"),
        ("1024", "2^{10}", "Write 1024 as a power of 2."),
    ],
    "a set of one, a remainder or a factor of one finishes nothing": [
        (answer.replace("F", _MADE), "18", _DUCKS)
        for answer in (
            *(r"\{F\}", r"x \in \{F\}", r"\{x : x = F\}", "F : 1", r"F\ (C)"),
            *(r"F \cdot 1!", r"F \cdot e^0", r"F \cdot i^4", r"F \cdot 100\%"),
            *("F + x - x", "F + 0i", r"\sqrt{(F)^2}"),
        )
    ],
}  # fmt: skip


def _box(answer):
    return rf"\boxed{{{answer}}}"


@pytest.mark.parametrize("name", CREDITED)
def test_what_is_worked_out_or_has_no_plainer_form_is_an_answer(name):
    for answer, gold, *problem in CREDITED[name]:
        assert judge(_box(answer), gold, *problem).correct, (answer, gold)


@pytest.mark.parametrize("name", [*UNFINISHED, *CALCULATED])
def test_the_last_step_is_left_to_nobody(name):
    """The answers of `UNFINISHED` are equal, and the golds of `CALCULATED` literal."""
    rules = judge if name in UNFINISHED else verifier.judge
    for answer, gold, problem in (UNFINISHED | CALCULATED)[name]:
        assert name in CALCULATED or is_equivalent(answer, gold), (answer, gold)
        verdict = rules(_box(answer), gold, problem)
        assert (verdict.correct, verdict.rule) == (False, "unfinished"), verdict


@pytest.mark.parametrize(
    "dressed",
    [
        r"\frac{2(F)+(F)}{3}", r"\frac{2(F)}{2}", "F+1-1", "(F)^{2/2}",
        "1+((F)-1)", "-(-(F))", r"\frac{x(F)}{x}", r"\ln e^{F}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("formula", "gold"),
    [
        (r"17\cdot24+9", "417"),
        (r"\sin 60^\circ", r"\frac{\sqrt3}{2}"),
        (r"\sqrt{50}", r"5\sqrt2"),
        ("(x+1)^2-x^2", "2x+1"),
    ],
)
def test_nothing_that_is_built_around_a_formula_hides_it(dressed, formula, gold):
    answer = dressed.replace("F", formula)
    verdict = Examiner([gold], f"Compute ${formula}$.").judge(answer)
    assert verdict.correct is False
    assert verdict.rule in ("echo", "open")


def test_without_a_problem_nothing_is_known_to_be_left():
    for answer, gold in [(r"3\cdot4", "12"), ("321", "1253_6")]:
        assert judge(rf"\boxed{{{answer}}}", gold).correct is True


def test_a_numeral_of_any_length_in_a_problem_is_no_fault():
    problem = f"How long is {'9' * 6000}? It has 3 and 4 times that."
    assert judge(r"\boxed{x = 6000.0}", "6000", problem).correct is True


def test_each_accepted_answer_may_be_written():
    problem = "Write $0.00033$, in percent or not. Someone says 3.3e-4."
    golds = (r"3.3 \times 10^{-4}", "3.3e-4")
    for gold in golds:
        assert judge(rf"\boxed{{{gold}}}", golds, problem).correct
