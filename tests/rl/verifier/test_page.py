"""Run the tables of docs/verifier.md and of the conventions, row by row."""

import re
from typing import get_args

import pytest

from rl.verifier import Rule, judge
from rl.verifier.parse.budget import STEPS
from rl.verifier.parse.cursor import MAX_DEPTH
from rl.verifier.parse.extract import MAX_BOX
from rl.verifier.parse.normalize import MAX_ANSWER
from rl.verifier.parse.tokens import MAX_DIGITS, MAX_TOKENS
from tests.other_processes import ROOT
from tests.rl.verifier.pairs import misjudged

_PAGES = ("docs/verifier.md", "rl/verifier/CONVENTIONS.md")


def _table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head."""
    text = "".join((ROOT / page).read_text() for page in _PAGES)
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _plain(cell: str) -> str:
    return cell.strip("`")


_CONVENTIONS = _table("Conventions")


def test_the_table_is_one_of_gold_answer_equal_and_why():
    assert len(_CONVENTIONS) > 50
    assert {len(row) for row in _CONVENTIONS} == {4}
    assert {row[2] for row in _CONVENTIONS} == {"yes", "no"}
    assert len({tuple(row[:2]) for row in _CONVENTIONS}) == len(_CONVENTIONS)


@pytest.mark.parametrize(
    "row", _CONVENTIONS, ids=[f"{r[0]} {r[1]}" for r in _CONVENTIONS]
)
def test_a_convention_holds(row):
    gold, answer, equal = map(_plain, row[:3])
    same, other = ([answer], []) if equal == "yes" else ([], [answer])
    assert misjudged([(gold, same, other)]) == []


def test_the_five_verdicts_are_what_the_page_says():
    rows = _table("Five verdicts")
    assert len(rows) == 5
    for gold, answer, problem, said in rows:
        verdict = judge(rf"\boxed{{{_plain(answer)}}}", _plain(gold), problem or None)
        correct, rule = re.match(r"(True|False), `(\w+)`", said).groups()
        assert (str(verdict.correct), verdict.rule) == (correct, rule)


def test_every_rule_is_explained():
    text = " ".join(row[0] for row in _table("The contract"))
    named = set(re.findall(r"`(\w+)`", text))
    way, *others = get_args(Rule)
    rules = {*get_args(way), *others} if get_args(way) else {way, *others}
    assert named == rules


def test_the_limits_are_those_of_the_code():
    text = " ".join(" ".join(row) for row in _table("Budgets"))
    for limit in (STEPS, MAX_BOX, MAX_ANSWER, MAX_TOKENS, MAX_DIGITS, MAX_DEPTH):
        assert f"{limit:,}" in text
