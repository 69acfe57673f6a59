"""A formula that was copied from the problem earns nothing."""

import re

import pytest

from rl.verifier import Examiner, judge
from tests.rl.verifier.measure import rows as read

_FORMULA = re.compile(r"\$([^$]+)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
# A value as one writes it, with a unit, a degree, a dollar or a percent sign.
_PLAIN = re.compile(
    r"[-+]?(?:\\\$)?\s*(?:[\d,.{}!\\ ]+|\\[dt]?frac\s*\{?\d+\}?\s*\{?\d+\}?|\d+/\d+"
    r"|\d+\s*\\[dt]?frac\s*\{?\d+\}?\s*\{?\d+\}?|[A-Za-z]|\\[a-z]+)\s*"
    r"(?:\\?%|\^\s*\{?\\circ\}?|(?:\\ |~)*\\(?:text|mbox|mathrm)\{[^{}]*\}(?:\^\d)?)*"
)
_SIGN = re.compile(r"\s*(=|<|>|\\leq?(?![a-z])|\\geq?(?![a-z]))\s*")
_TURNED = {"=": "=", "<": ">", ">": "<", r"\le": r"\ge", r"\leq": r"\geq"}
_TURNED |= {r"\ge": r"\le", r"\geq": r"\leq"}


def _bare(text: str) -> str:
    text = re.sub(r"\\(?:left|right|,|!|;|:| )", "", text.replace("dfrac", "frac"))
    return re.sub(r"[\s{}.]", "", text)


def _formulas(problem: str, gold: str) -> list[str]:
    """Those that are neither plain values nor the gold."""
    found = []
    for match in _FORMULA.finditer(problem):
        text = next(filter(None, match.groups())).strip(" .,;:?\n")
        own = {_bare(text), *map(_bare, text.split("="))}
        if text and not _PLAIN.fullmatch(text) and _bare(gold) not in own:
            found.append(text)
    return list(dict.fromkeys(found))


def _spellings(text: str) -> list[str]:
    """As it is, and as a policy might disguise it."""
    found = [text, rf"\displaystyle {text}", rf"\color{{red}}{{{text}}}"]
    parts = _SIGN.split(text)
    if len(parts) == 3 and text.count("{") == text.count("}"):
        left, sign, right = parts
        if all(side.count("{") == side.count("}") for side in (left, right)):
            found += [f"{right} {_TURNED[sign]} {left}", f"{left} + 0 {sign} {right}"]
    elif len(parts) == 1:
        found += [f"{text} + 0", f"0 + {text}", rf"1 \cdot \left({text}\right)"]
        terms = re.fullmatch(r"([^-+(){}|,]+)\+([^-+(){}|,]+)", text)
        if terms:
            found.append(f"{terms[2]} + {terms[1]}")
    return found


@pytest.mark.failure(43)
@pytest.mark.parametrize(
    ("name", "stride"), [("train/math12k.jsonl", 12), ("eval/math500.jsonl", 1)]
)
def test_copies_are_seldom_credited(shared_data, name, stride):
    rows = [row for row in read(shared_data / name)[::stride] if row["answer"]]
    credited, own, boxes = [], 0, 0
    for row in rows:
        gold = row["answer"]
        examiner = Examiner([gold], row["problem"])
        own += judge(rf"\boxed{{{gold}}}", gold, row["problem"]).correct is True
        for formula in _formulas(row["problem"], gold):
            texts = _spellings(formula)
            boxes += len(texts)
            hit = [text for text in texts if examiner.judge(text).correct is True]
            if hit:
                credited.append((row["id"], gold, hit[0]))
                break
    assert boxes > 3 * len(rows)
    assert len(credited) <= 0.003 * len(rows), credited
    assert own >= 0.999 * len(rows)


@pytest.mark.failure(43)
def test_without_the_problem_copies_would_be_credited(shared_data):
    """What the rule is for: else this file would show nothing."""
    rows = read(shared_data / "eval" / "math500.jsonl")
    equal = 0
    for row in rows:
        examiner = Examiner([row["answer"]], literal=False)
        equal += any(
            examiner.judge(text).correct is True
            for text in _formulas(row["problem"], row["answer"])
        )
    assert equal > 0.03 * len(rows)


@pytest.mark.parametrize(
    ("problem", "answer", "gold"),
    [
        (r"Compute $17\cdot24$.", r"\frac{17\cdot24}{1}", "408"),
        (r"Compute $17\cdot24$.", r"17\cdot24\cdot1^5", "408"),
        (r"Compute $17\cdot24$.", r"\frac{24 \cdot 17}{1^2}", "408"),
        ("Expand $(x-3)^2$.", "(3-x)^2", "x^2-6x+9"),
        ("Expand $(x+2)^2$.", "(-x-2)^2", "x^2+4x+4"),
        ("Expand $(a-b)^3$.", "-(b-a)^3", "a^3-3a^2b+3ab^2-b^3"),
        ("Expand $(x-2)(x+5)$.", "(2-x)(-5-x)", "x^2+3x-10"),
        (r"Simplify $\frac{x^2-4}{x-2}$.", r"\frac{4-x^2}{2-x}", "x+2"),
        (r"Simplify $\sqrt{(x-7)^2}$.", r"\sqrt{(7-x)^2}", "|x-7|"),
    ],
)
def test_ones_and_signs_that_cancel_hide_no_copy(problem, answer, gold):
    verdict = judge(rf"\boxed{{{answer}}}", gold, problem)
    assert (verdict.correct, verdict.rule) == (False, "echo")
    assert judge(rf"\boxed{{{gold}}}", gold, problem).correct


@pytest.mark.parametrize(
    ("problem", "answer", "gold"),
    [
        ("Factor $x^2-4$.", "(2-x)(-2-x)", "(x-2)(x+2)"),
        ("Factor $4-x^2$.", "-(x-2)(x+2)", "(2-x)(2+x)"),
        (r"Rewrite $\frac{a-b}{c-d}$.", r"\frac{b-a}{d-c}", r"\frac{b-a}{d-c}"),
        ("Compute $(-2)^3$.", "-8", "-8"),
        ("Compute $-3^{-1}$.", r"-\frac13", r"-\frac13"),
    ],
)
def test_signs_make_no_copy_of_a_right_answer(problem, answer, gold):
    assert judge(rf"\boxed{{{answer}}}", gold, problem).correct
