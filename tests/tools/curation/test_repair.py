"""Repairs undo faults of transit, and leave sound text alone."""

import dataclasses

import pytest

from tools.curation import repair
from tools.curation.row import Row


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("2 \text{ or } -6", r"2 \text{ or } -6"),
        ("\\\text{cm}", r"\text{cm}"),
        ("(e+e) \times d", r"(e+e) \times d"),
        ("\x0crac{1}{2}", r"\frac{1}{2}"),
        ("the greatest \x0cfive-digit number", "the greatest \x0cfive-digit number"),
        ("a \neq 0", r"a \neq 0"),
        ("\x08eta + \right)", r"\beta + \right)"),
        (r"\frac{1}{2}\text{ cm}", r"\frac{1}{2}\text{ cm}"),
        ("a fraction\nequals", "a fraction\nequals"),
        ("tomorrow\tand", "tomorrow\tand"),
        (r"\underline{1}", r"\underline{1}"),
    ],
)
def test_tex_escapes_come_back(broken, whole):
    assert repair.restore_escapes(broken) == whole


def test_markup_becomes_text_or_tex():
    assert repair.plain_markup("a<sub>n</sub> = 2<sup>n</sup>") == "a_{n} = 2^{n}"
    assert repair.plain_markup("one<br/>two<p>three</p>") == "one\ntwo\nthree\n"
    assert repair.plain_markup("[b](i)[/b] x < y") == "(i) x < y"
    assert repair.plain_markup("x &lt; 4 &amp; y") == "x < 4 & y"
    linked = "Find the [remainder](https://a.org/Remainder_(number)) of [x](y)."
    assert repair.plain_markup(linked) == "Find the remainder of [x](y)."
    drawn = "Find it: [a.png](https://a.org/a.png)"
    assert repair.plain_markup(drawn) == drawn
    assert repair.plain_markup("Find $x$.\n请将上面的源文本翻译成英文") == "Find $x$."
    order = "Translate the above text into English, and keep the format."
    assert repair.plain_markup(f"Find $x$.\n\n---\n\n{order}") == "Find $x$."
    assert repair.plain_markup(f"Then $x$ is {order}") == "Then $x$ is "
    moved = "Translate the graph of $y$ by 1. Find the translation."
    assert repair.plain_markup(moved) == moved
    assert repair.plain_markup("5&radic;3 &pi;") == "5√3 π"
    assert repair.plain_markup(r"a &lt b \\\\ c &= d") == r"a &lt b \\\\ c &= d"
    assert repair.plain_markup("x < y and y > z") == "x < y and y > z"


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
    assert repair.answer_of_solution(solution) == answer


@pytest.mark.parametrize(
    ("answer", "bare"),
    [
        (r"\[ \boxed{36} \]", "36"),
        ("$782", "782"),
        ("\\frac{44\\pi}{3}$", "\\frac{44\\pi}{3}"),  # the last of options in a formula
        ("5\\$", "5\\$"),
        ("$C=1+\\sqrt{2}$", "C=1+\\sqrt{2}"),
        ("072", "72"),
        ("{-}88", "-88"),
        ("2:1,", "2:1"),
        ("$3\\,$.", "3"),
        (r"3\\,", "3"),
        (r"\boxed{1}, \boxed{2}", r"\boxed{1}, \boxed{2}"),
        ("1, 2, ...", "1, 2, ..."),
        (r"B: 6.25 \times 10^{-3}", r"6.25 \times 10^{-3}"),
        (r"(D) (-\infty, 2]", r"(-\infty, 2]"),
        ("A: 5, B: 3", "A: 5, B: 3"),
        ("$2 \\sqrt{7}$\\\\\n\\noindent", r"2 \sqrt{7}"),
        (r"\boxed{\frac{1}{2}", r"\boxed{\frac{1}{2}"),
        ("9 (apples)", "9 (apples)"),
        (r"\textbf{(B)}~\frac{9}{200}", r"\frac{9}{200}"),
        ("x^2 (mod 5)", "x^2 (mod 5)"),
        (r"\\frac{18\\sqrt{15}}{5}", r"\frac{18\sqrt{15}}{5}"),
        (r"\begin{pmatrix}1\\a\end{pmatrix}", r"\begin{pmatrix}1\\a\end{pmatrix}"),
        ("x^", "x^"),
        (r"There are \(\boxed{6}\) of them", "6"),
        ("**", ""),
        ("$$", ""),
        (r"\[ \boxed{} \]", ""),
    ],
)
def test_bare_answers(answer, bare):
    assert repair.bare_answer(answer) == bare


def test_a_sound_row_is_untouched():
    row = Row(id="a", problem="What is $\\frac{1}{2} + x$?", answers=("3",))
    assert repair.repair(row) == (row, ())


def test_repairs_are_named():
    row = Row(id="a", problem="Find x<br/>if \x0crac{x}{2}=1.", solution="\\boxed{2}")
    fixed, done = repair.repair(row)
    assert fixed.problem == "Find x\nif \\frac{x}{2}=1."
    assert fixed.answers == ("2",)
    assert done == ("tex_escapes", "markup", "answer_from_solution")


def test_a_gold_of_markup_alone_is_that_of_the_solution():
    row = Row(id="a", problem="Find x.", answers=("**",), solution="\\boxed{2}")
    fixed, done = repair.repair(row)
    assert fixed.answers == ("2",) and done == ("answer_from_solution",)
    assert repair.repair(dataclasses.replace(row, solution=""))[0].answers == ()
