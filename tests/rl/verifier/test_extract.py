"""Extraction: the last outermost box, nested braces, linear time."""

import pytest

from rl.verifier import extract_answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("so \\boxed{5}.", "5"),
        ("\\boxed{1} no, \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt{2}}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\left\\{ x \\right\\}}", "\\left\\{ x \\right\\}"),
        ("\\boxed {7}", "7"),
        ("\\boxed 7 is it", "7"),
        ("\\fbox{7}", "7"),
        ("\\boxed{ }", None),
        ("\\boxed{}", None),
        ("no box", None),
        ("", None),
        ("\\boxed", None),
        # Cut off: the box before it was no final answer.
        ("\\boxed{1}, then \\boxed{\\frac{1}{2}", None),
        ("\\boxed{\\text{a\\}b}}", "\\text{a\\}b}"),
        ("\\\\boxed{5}", "5"),
        ("x = 1 \\\\\\boxed{5}", "5"),
        # The outermost one: what is written inside of it is a part of its answer.
        ("\\boxed{-\\boxed{5}}", "-\\boxed{5}"),
        ("\\boxed{\\frac{1}{\\boxed5}}", "\\frac{1}{\\boxed5}"),
        ("\\boxed{\\text{not }\\boxed5}", "\\text{not }\\boxed5"),
        ("\\boxed{1,2,3,\\boxed5}", "1,2,3,\\boxed5"),
        ("\\boxed{\\fbox{5}} or \\boxed{6}", "6"),
        ("\\mathbf{\\boxed{5}}", "5"),
        ("{\\boxed{5}", "5"),
        ("\\boxed6\\phantom{\\boxed5}", "6"),
        ("\\phantom{\\boxed{5}}", None),
        # Cut off inside: a formula goes on to a blank line at most.
        ("\\boxed{-\\boxed{5}", None),
        ("\\boxed{1, or \\boxed{5}", None),
        ("\\boxed{\\frac{1}{2}\n\nNo: \\boxed{5}", "5"),
        ("\\boxed{" + "1" * 20_001 + "}", None),
        ("\\boxed{\\boxed{5}" + " " * 20_000 + "}", None),
    ],
)
def test_last_box(reply, answer):
    assert extract_answer(reply) == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Answer: 42", "42"),
        ("The answer is 3. No, the answer is 4.\nDone", "4"),
        ("**Answer:** $\\frac12$", "$\\frac12$"),
        ("answer", None),
        ("42", None),
        ("Answer: 42 but \\boxed{43}", "43"),
        ("Answer: 42 but \\boxed{}", None),
    ],
)
def test_answer_line_is_an_option(reply, answer):
    assert extract_answer(reply, answer_line=True) == answer
    if "box" not in reply:
        assert extract_answer(reply) is None


@pytest.mark.parametrize(
    "text",
    ["\\boxed{", "{", "}", "\\", "Answer: ", "\\boxed{}", "wait ", "\\boxed"]
    + ["\\boxed{\\phantom{", "\\boxed5}", "\\boxed{\n\n"],
)
def test_a_million_characters_take_no_time(text, seconds):
    reply = text * (1_000_000 // len(text))
    started = seconds()
    extract_answer(reply, answer_line=True)
    assert seconds() - started < 0.2
