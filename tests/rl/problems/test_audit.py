"""Unreadable golds and repeated problems are named before a run begins."""

import re

import pytest

from rl.problems.audit import describe_repeats, readable
from rl.types import Problem


def _problem(id, text, *answers):
    return Problem(id=id, problem=text, answers=answers)


def problems(*golds):
    return [
        _problem(f"p{i}", "?", *(gold if isinstance(gold, tuple) else (gold,)))
        for i, gold in enumerate(golds)
    ]


def check(of, **changes):
    options = dict(where="mine.jsonl", workers=1, timeout=20, unreadable=0.5)
    return readable(of, **{**options, **changes})


@pytest.mark.failure(51)
def test_what_cannot_be_read_is_named_and_left_out():
    of = problems("42", "\\frac{1}{", ("((", "7"), "Monday", "x = 5", "[0, 1)")
    kept, told = check(of)
    assert [p.id for p in kept] == ["p0", "p2", "p3", "p4", "p5"]
    assert told == (
        "mine.jsonl: the verifier cannot read the golds of 1 of 6 problems (16.67%),"
        " such as 'p1': '\\\\frac{1}{' ends where an operand is expected;"
        " they are left out"
    )


@pytest.mark.failure(51)
def test_a_worked_solution_is_no_gold():
    """GSM8K's own answers: nothing that a model answers is ever equal to one."""
    worked = "She sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72"
    with pytest.raises(ValueError) as error:
        check(problems(worked, "72", "There are five.\n#### 5"))
    message = str(error.value)
    assert "the golds of 2 of 3 problems (66.67%), such as 'p0': 'She" in message
    assert "#### 72'" in message and "\n" not in message
    assert message.endswith("unreadable=0.5, the share that may be left out")


def test_plain_numbers_need_no_worker(monkeypatch):
    monkeypatch.setattr("rl.problems.audit.Workers", None)
    kept, _ = check(problems(*map(str, range(30_000))))
    assert len(kept) == 30_000


def test_refused_above_the_share():
    of = problems("((", *["\\frac{3}{4}"] * 99)
    assert check(of[1:], unreadable=0.0) == (of[1:], "")
    assert len(check(of, unreadable=0.01)[0]) == 99
    with pytest.raises(ValueError, match=re.escape("1 of 100 problems (1.00%)")):
        check(of, unreadable=0.009)


@pytest.mark.failure(61)
def test_each_kind_is_counted():
    train = [
        _problem("a", "What is 1/2?", "0.5"),
        _problem("b", "What is\n1/2? ", "1/2"),
        _problem("c", "What is 1/2?", "2"),
        _problem("d", "What is 3?", "3"),
    ]
    assert describe_repeats(train, [_problem("x", "What is  3?", "3")]) == [
        "training problems that repeat the text of an earlier problem: 2, first 'b';"
        " remove them",
        "training problems that repeat the text of an earlier problem with another"
        " answer: 1, first 'c'; remove them",
        "training problems that are also held-out problems, whose scores are then too"
        " high: 1, first 'd'; remove them",
    ]
    assert describe_repeats(train[:1], []) == []
