"""Repairs undo faults of transit, and leave sound text alone."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tools.curation.repair import (
    answer_of_solution,
    bare_answer,
    plain_markup,
    repair,
    restore_escapes,
)
from tools.curation.row import Row


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("2 \text{ or } -6", r"2 \text{ or } -6"),
        ("\\\text{cm}", r"\text{cm}"),
        ("(e+e) \times d", r"(e+e) \times d"),
        ("\x0crac{1}{2}", r"\frac{1}{2}"),
        ("a \neq 0", r"a \neq 0"),
        ("\x08eta + \right)", r"\beta + \right)"),
        (r"\frac{1}{2}\text{ cm}", r"\frac{1}{2}\text{ cm}"),
        ("a fraction\nequals", "a fraction\nequals"),
        ("tomorrow\tand", "tomorrow\tand"),
        (r"90\u00B0", "90°"),
        (r"\underline{1}", r"\underline{1}"),
    ],
)
def test_tex_escapes_come_back(broken, whole):
    assert restore_escapes(broken) == whole


def test_markup_becomes_text_or_tex():
    assert plain_markup("a<sub>n</sub> = 2<sup>n</sup>") == "a_{n} = 2^{n}"
    assert plain_markup("one<br/>two<p>three</p>") == "one\ntwo\nthree\n"
    assert plain_markup("[b](i)[/b] x < y") == "(i) x < y"
    assert plain_markup("x &lt; 4 &amp; y") == "x < 4 & y"
    told = "Find $x$.\n\nPlease translate this text, keep its format and say no more."
    assert plain_markup(told) == "Find $x$.\n"
    assert plain_markup(asked := "Translate $f$ by 2.\nFind its zero.") == asked
    linked = "Find the [remainder](https://a.org/Remainder_(number)) of [x](y)."
    assert plain_markup(linked) == "Find the remainder of [x](y)."
    drawn = "Find it: [a.png](https://a.org/a.png)"
    assert plain_markup(drawn) == drawn
    assert plain_markup("Find $x$.\n请将上面的源文本翻译成英文") == "Find $x$."
    assert plain_markup("5&radic;3 &pi;") == "5√3 π"
    assert plain_markup(r"\\((\\)I\\()\\) Find \\(f(x)\\).") == r"(I) Find \\(f(x)\\)."
    assert plain_markup(r"a &lt b \\\\ c &= d") == r"a &lt b \\\\ c &= d"
    assert plain_markup("x < y and y > z") == "x < y and y > z"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so \boxed{263}", "263"),
        (r"first \boxed{1}, then \boxed{\frac{a}{b}}.", r"\frac{a}{b}"),
        (r"a set \boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"unclosed \boxed{12", None),
        (r"\boxed{3} but the last \boxed{4 is open", None),
        ("<<48/2=24>>24 clips.\n#### 1,072\nbye", "1072"),
        ("<<48/2=24>>24 clips.\n#### 1,072\n", "1072"),
        ("24 clips.\n#### 24\nThe answer is: 24", "24"),  # MetaMath's
        ("#### 3,5", "3,5"),
        ("#### Step 3: Check\nBoth sides are 42.", None),  # a heading
        ("no answer here", None),
    ],
)
def test_the_answer_is_found_in_the_solution(solution, answer):
    assert answer_of_solution(solution) == answer


@pytest.mark.parametrize(
    ("answer", "bare"),
    [
        (r"\[ \boxed{36} \]", "36"),
        ("$782", "782"),
        ("\\frac{44\\pi}{3}$", "\\frac{44\\pi}{3}"),  # the last of options in a formula
        ("5\\$", "5\\$"),
        ("$C=1+\\sqrt{2}$", "C=1+\\sqrt{2}"),
        ("$a$ and $b$", "$a$ and $b$"),
        ("072", "72"),
        ("{-}88", "-88"),
        ("400", "400"),
        ("0", "0"),
        ("000", "0"),
        ("0.50", "0.50"),
        ("2:1,", "2:1"),
        ("3\\,", "3"),
        ("$3\\,$.", "3"),
        (r"3\\,", "3"),
        (r"\{1, 2\}.", r"\{1, 2\}"),
        (r"\boxed{1}, \boxed{2}", r"\boxed{1}, \boxed{2}"),
        ("1, 2, ...", "1, 2, ..."),
        (r"B: 6.25 \times 10^{-3}", r"6.25 \times 10^{-3}"),
        (r"(D) (-\infty, 2]", r"(-\infty, 2]"),
        ("A: 5, B: 3", "A: 5, B: 3"),
        ("A:B", "A:B"),
        ("$2 x+y=0$.", "2 x+y=0"),
        ("$2 \\sqrt{7}$\\\\\n\\noindent", r"2 \sqrt{7}"),
        (r"\boxed{\frac{1}{2}", r"\boxed{\frac{1}{2}"),
        ("Solution is: $[x=1, y=2]$", "[x=1, y=2]"),
        (r"The answer is \quad 7", "7"),
        (r"\quad 2 \sqrt{2}", r"2 \sqrt{2}"),
        ("The solution set", "The solution set"),
        ("9 (apples)", "9 (apples)"),
        ("5/2 (ACCEPT: 2 1/2 OR 2.5)", "5/2"),
        ("50\n\nRound Robin 7 Page 13", "50"),
        ("2 (sin x)", "2 (sin x)"),
        (r"\textbf{(B)}~\frac{9}{200}", r"\frac{9}{200}"),
        (r"37 \textbf{(D)}", "37"),
        ("25 (C)", "25 (C)"),
        ("16 (n)", "16 (n)"),
        ("x^2 (mod 5)", "x^2 (mod 5)"),
        ("45^", r"45^\circ"),
        ("60^ extcirc}", r"60^\circ"),
        ("x^", "x^"),
        (r"There are \(\boxed{6}\) of them", "6"),
    ],
)
def test_bare_answers(answer, bare):
    assert bare_answer(answer) == bare


DETERMINANT = r"\left|\begin{array}{rr}1 & 2 \\ 4 & 2\end{array}\right|"


@pytest.mark.parametrize(
    ("problem", "answer", "value"),
    [
        ("Simplify $i^{15}$.", r"i^{15}=i^{12} \cdot i^3=-i", "-i"),
        ("Expand it.", "(x-1)^2=x^2-2 x+1", "x^2-2 x+1"),
        ("How much is it?", r"S = \frac{1}{2} \cdot 3 \cdot 4 = 6", "6"),
        ("Solve it.", r"t=\frac{\ln (1/18)}{-0.1}=10 \ln (18)", r"10 \ln (18)"),
    ],
)
def test_sides_shown_equal_say_only_the_last(problem, answer, value):
    row = Row(id="a", problem=problem, answers=(answer,))
    assert repair(row)[0].answers == (value,)


@pytest.mark.parametrize(
    ("problem", "answer", "value"),
    [
        (r"Find $\log 10^5 =$ ____.", r"\log 10^{5} = 5", "5"),
        (f"Find the determinant ${DETERMINANT}$.", DETERMINANT + "=-6", "-6"),
        ("Find it to three places.", r"\cos (-2.01) \approx-0.425", "-0.425"),
        ("To the nearest cent?", r"P=2000 e^{-0.0075} \approx \$ 1985.06",
         r"\$ 1985.06"),
        ("Find $a+b$.", "a+b=3", "3"),
        ("Compute $E(8 X-Y)$.", r"E(8 X-Y)=8/p-\lambda", r"8/p-\lambda"),
    ],
)  # fmt: skip
def test_the_value_alone_is_an_answer_too(problem, answer, value):
    row = Row(id="a", problem=problem, answers=(answer,))
    assert repair(row)[0].answers == (value, answer)


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        # no part of what is asked, but what says which of several equations it is
        ("Find the parabola $y^2=2px$.", "y^2=4x"),
        ("Solve $x^2=1$.", "x=1, x=-1"),
        # an equation is the answer: 4 and ac would be wrong
        ("A curve is a level of $x^2+4y^2$ through $(2,0)$. Find its equation.",
         "x^2+4y^2=4"),
        ("Find the level of $x^2+4y^2$ through 2.", "x^2+4y^2=4"),
        ("What equation relates $b^2$ and $ac$?", "b^2=ac"),
        # more than one value: 1, 4) and 4 would be wrong
        ("Find $a+b$ and then $a-b$.", r"a+b=3 \text{ and } a-b=1"),
        ("Find $n^2$.", "n^2=16 (n=4)"),
        ("Find $n^2$.", "n^2=16 so n=4"),
        ("Find $a^2$.", r"a^2=16 \Rightarrow a=4"),
        ("Find $a^2$.", r"a^2=16, a=4"),
        ("Find $a^2$.", r"a^2=16 \quad a=4"),
        ("Find the equation: $y^2$", "y^2=4x"),
        ("Find $a^2 + 1$.", r"a^2 + 1 >= 4"),
        ("Find $a + b$.", "a + b = 1 or a + b = 2"),
        # one side, and the verifier reads the label
        ("Find $x$.", "x=5"),
    ],
)  # fmt: skip
def test_what_says_more_than_a_value_stays(problem, answer):
    row = Row(id="a", problem=problem, answers=(answer,))
    assert repair(row) == (row, ())


@given(st.text(alphabet="0123456789", min_size=1, max_size=6))
def test_a_bare_integer_keeps_its_value(digits):
    assert int(bare_answer(digits)) == int(digits)


@given(st.text(alphabet="ab1{}\\$ .", max_size=30))
def test_bare_answers_are_bare_already(text):
    once = bare_answer(text)
    assert bare_answer(once) == once or once.count("$") or "\\" in once


def test_a_sound_row_is_untouched():
    row = Row(id="a", problem="What is $\\frac{1}{2} + x$?", answers=("3",))
    assert repair(row) == (row, ())


def test_repairs_are_named():
    row = Row(
        id="a",
        problem="Find x<br/>if \x0crac{x}{2}=1.",
        solution="\\boxed{2}",
    )
    fixed, done = repair(row)
    assert fixed.problem == "Find x\nif \\frac{x}{2}=1."
    assert fixed.answers == ("2",)
    assert done == ("tex_escapes", "markup", "answer_from_solution")
