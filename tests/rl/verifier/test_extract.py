"""Extraction: the last outermost box, nested braces, linear time."""

import pytest

from rl.verifier import VerifierPool, extract_answer, judge
from rl.verifier.parse.extract import extract_boxes


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right\}}", r"\left\{ x \right\}"),
        (r"\boxed {7}", "7"),
        (r"\boxed 7 is it", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed{ }", None),
        (r"\boxed{}", None),
        ("no box", None),
        ("", None),
        (r"\boxed", None),
        # Cut off: the box before it was no final answer.
        (r"\boxed{1}, then \boxed{\frac{1}{2}", None),
        (r"\boxed{\text{a\}b}}", r"\text{a\}b}"),
        (r"\\boxed{5}", "5"),
        (r"x = 1 \\\boxed{5}", "5"),
        # The outermost one: what is written inside of it is a part of its answer.
        (r"\boxed{-\boxed{5}}", r"-\boxed{5}"),
        (r"\boxed{\frac{1}{\boxed5}}", r"\frac{1}{\boxed5}"),
        (r"\boxed{\text{not }\boxed5}", r"\text{not }\boxed5"),
        (r"\boxed{1,2,3,\boxed5}", r"1,2,3,\boxed5"),
        (r"\boxed{\fbox{5}} or \boxed{6}", "6"),
        (r"\mathbf{\boxed{5}}", "5"),
        (r"{\boxed{5}", "5"),
        (r"\boxed6\phantom{\boxed5}", "6"),
        (r"\phantom{\boxed{5}}", None),
        # Cut off inside: a formula ends at a blank line at the latest.
        (r"\boxed{-\boxed{5}", None),
        (r"\boxed{1, or \boxed{5}", None),
        ("\\boxed{\\frac{1}{2}\n\nNo: \\boxed{5}", "5"),
        (r"\boxed{" + "1" * 20_001 + "}", None),
        (r"\boxed{\boxed{5}" + " " * 20_000 + "}", None),
    ],
)
def test_last_box(reply, answer):
    assert extract_answer(reply) == answer


@pytest.mark.parametrize(
    "text",
    [r"\boxed{", "{", "}", "\\", "Answer: ", r"\boxed{}", "wait ", r"\boxed"]
    + [r"\boxed{\phantom{", r"\boxed5}", "\\boxed{\n\n"],
)
def test_a_million_characters_take_no_time(text, seconds):
    reply = text * (1_000_000 // len(text))
    started = seconds()
    extract_answer(reply)
    assert seconds() - started < 0.2


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        (r"$\boxed{2}$ and $\boxed{3}$", ("2", "3")),
        (r"\boxed{2}, \boxed{3},\ \boxed{4}.", ("2", "3", "4")),
        (r"\boxed{2} \text{ or } \boxed{3}", ("2", "3")),
        (r"\boxed{1}. So it is \boxed{2}, \boxed{3}", ("2", "3")),
        ("\\boxed{2}\n\n\\boxed{3}", ("3",)),
        (r"\boxed{2} = \boxed{3}", ("3",)),
        (r"\boxed{2}, \boxed{", ()),
        (r"\boxed{}, \boxed{3}", ("3",)),
        (r"\boxed{1}\boxed{5}", ("5",)),
        ("none", ()),
    ],
)
def test_neighbouring_boxes_are_one_list(text, boxes):
    assert extract_boxes(text) == boxes
    assert extract_answer(text) == (boxes[-1] if boxes else None)


def test_a_list_must_equal_the_whole_gold():
    two = r"$\boxed{2}$ and $\boxed{3}$"
    assert judge(two, "2, 3").correct and judge(two, r"\{3, 2\}").correct
    assert judge(two, "3").correct and not judge(two, "2").correct
    assert not judge(two, "2, 3, 4").correct
    assert not judge(r"\boxed{1}, \boxed{2, 3}", "2, 3").correct
    with VerifierPool(1, timeout=20) as pool:
        (verdict,) = pool.judge([(two, ["2, 3"], None)])
    assert verdict.correct and verdict.answer == "2, 3"


def test_nothing_before_a_delimiter_counts():
    text = r"<think>\boxed{1}</think> so \boxed{2}"
    assert extract_answer(text, after="</think>") == "2"
    assert extract_answer(r"<think> \boxed{1}", after="</think>") is None
    assert extract_answer(r"\boxed{1}</think>", after="</think>") is None
    assert judge(text, "2", after="</think>").correct
    with VerifierPool(1, timeout=20, after="</think>") as pool:
        rules = [v.rule for v in pool.judge([(r"\boxed{2}", ["2"], None)] * 2)]
    assert rules == ["no_answer", "no_answer"]
