"""Unreadable golds and repeated problems are named before a run begins."""

import pytest

from rl.problems.audit import describe_faults, unreadable_golds
from rl.types import Problem


def _problem(id, text, *answers):
    return Problem(id=id, problem=text, answers=answers)


def problems(*golds):
    golds = [gold if isinstance(gold, tuple) else (gold,) for gold in golds]
    return [_problem(f"p{i}", "?", *gold) for i, gold in enumerate(golds)]


def check(*golds):
    return unreadable_golds(problems(*golds), workers=1, timeout=20)


@pytest.mark.failure(51)
def test_golds_that_cannot_be_read_are_named():
    # The second is a worked solution, as in GSM8K: no answer is ever equal to it.
    worked = "She sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72"
    found = check("42", "\\frac{1}{", ("((", "7"), "Monday", worked, "x = 5", "[0, 1)")
    assert found.keys() == {"p1", "p4"}
    assert found["p1"] == (
        "the gold of problem 'p1': '\\\\frac{1}{' ends where an operand is expected"
    )
    assert "#### 72'" in found["p4"] and "\n" not in found["p4"]


def test_plain_numbers_need_no_worker(monkeypatch):
    monkeypatch.setattr("rl.problems.audit.Workers", None)
    assert check(*map(str, range(30_000))) == {}


@pytest.mark.failure(61)
def test_each_kind_is_counted():
    train = [
        _problem("a", "What is 1/2?", "0.5"),
        _problem("b", "What is\n1/2? ", "1/2"),
        _problem("c", "What is 1/2?", "2"),
        _problem("d", "What is 3?", "3"),
    ]
    assert describe_faults(train, [_problem("x", "What is  3?", "3")]) == [
        "2 of 4 training problems repeat the text of an earlier problem, such as the"
        " problem with id 'b'; remove them from config.data.train",
        "1 of 4 training problems repeat the text of an earlier problem with another"
        " answer, such as the problem with id 'c'; remove them from config.data.train",
        "1 of 4 training problems are also held-out problems, whose scores are then"
        " too high, such as the problem with id 'd'; remove them from"
        " config.data.train",
    ]
    assert describe_faults(train[:1], []) == []


@pytest.mark.failure(216)
def test_latex_that_json_has_read_as_escapes_is_counted():
    first = _problem("a", "What is\n1 \times 2?", "2")
    train = [first, _problem("b", "1?", "\x0crac12")]
    assert describe_faults(train, [_problem("c", "1 \times 2", "2")]) == [
        "3 problems have control characters in place of LaTeX commands, such as the"
        r" problem with id 'a'; JSON needs two backslashes, as in \\frac"
    ]
