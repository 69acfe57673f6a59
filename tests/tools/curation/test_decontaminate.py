"""Evaluation problems are found nearly and by their 13-grams."""

import dataclasses

import pytest

from rl.types import Problem
from tools.curation.decontaminate import EvaluationIndex, decontaminate
from tools.curation.row import Row
from tools.curation.text import band_hashes, exact_key

EVALUATION = {
    "set/0": "A fair coin is tossed until two heads come up in a row. What is the"
    " expected number of tosses that this takes in the long run?",
    "set/1": "Convert the point $(0,3)$ to polar coordinates.",
}
index = EvaluationIndex(EVALUATION)


def row(text):
    """A problem as it is after its screening."""
    return Row(id="a", problem=text, key=exact_key(text), bands=band_hashes(text))


def test_the_same_text_in_other_clothes():
    found = index.near(row(r"convert the point \( (0, 3) \) to polar coordinates"))
    assert found == {"set/1": 1.0}


def test_one_word_changed_is_near():
    found = index.near(row(EVALUATION["set/0"].replace("expected", "average")))
    assert list(found) == ["set/0"]


def test_a_problem_inside_a_longer_one_shares_runs_of_words():
    longer = "Alice owns three books and reads. " + EVALUATION["set/0"] + " Then add 9."
    runs = index.runs(longer)
    assert len(runs) == 15 and set(map(tuple, runs.values())) == {("set/0",)}


def test_another_problem_shares_nothing():
    other = "How many primes lie between one hundred and two hundred?"
    assert (index.near(row(other)), index.runs(other)) == ({}, {})


@pytest.mark.parametrize(("copies", "leaks"), [(10, 10), (11, 0)])
def test_a_run_in_more_problems_than_a_few_is_boilerplate(copies, leaks):
    run = EVALUATION["set/0"].partition("?")[0]
    asked = [
        f"{n} goats and {n} kids wait. {run}, and of goats?" for n in "abcdefghijk"
    ]
    rows = [Row(id=text, problem=text, key=text) for text in asked[:copies]]
    # The same problem again, whose key it has, counts once.
    rows.append(dataclasses.replace(rows[0], reasons={}))
    problem = Problem(id="set/0", problem=EVALUATION["set/0"], answers=("6",))
    decontaminate(rows, {"set/0": problem})
    assert [*rows[0].reasons] == ["evaluation_ngram"] * bool(leaks)
    assert sum("evaluation_ngram" in r.reasons for r in rows[:copies]) == leaks


def test_word_for_word_with_a_number_set_otherwise():
    """Of their 3-grams they share less than half."""
    asked = "How many positive integers less than $1{,}000$ are multiples of 7?"
    index = EvaluationIndex({"e": asked})
    assert index.near(row(asked.replace("{,}", ""))) == {"e": 1.0}
    assert index.near(row(asked.replace("7", "11"))) != {"e": 1.0}


@pytest.mark.parametrize(
    ("gold", "leaks"), [("7/13", 1), (r"\frac{7}{13}", 1), ("21", 0)]
)
def test_a_fraction_leaks_where_a_contest_asks_for_its_sum(gold, leaks):
    told = "Ann and Bo roll 4 red dice and 9 blue dice until 17 of them show a six."
    asked = f"{told} The chance that Ann wins is m/n in lowest terms. Find m + n."
    problem = Problem(id="set/0", problem=asked, answers=("20",))
    reworded = told.replace(" and 9", " with 9").replace("until", "till")
    row = Row(
        id="a", problem=f"{reworded} Find the chance that Ann wins.", answers=(gold,)
    )
    decontaminate([row], {"set/0": problem})
    assert [*row.reasons] == ["evaluation_reworded"] * leaks
