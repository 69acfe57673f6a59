"""Rewordings of evaluation problems are found, and siblings are not."""

import json
import pathlib
import random
import re

import pytest

from rl.problems.audit import agree
from rl.types import Problem
from tests.tools.curation.test_decontaminate import row as screened
from tools.curation.decontaminate import EvaluationIndex
from tools.curation.retrieval import Retrieval
from tools.evaluation.benchmarks import load_benchmark

SETS = "aime2024 amc83 math500 minerva272 olympiadbench675 gsm8k_test".split()
PARAPHRASES = pathlib.Path(__file__).with_name("paraphrases.jsonl")
# Signs, spacing and words of the same meaning, as another typesetter would have them.
FORMATS = (
    (r"\\frac", r"\\dfrac"),
    (r"\$\$|\\\[|\\\]", "\n$$ "),
    (r"(?<!\$)\$(?!\$)", " "),
    (r"\\(?:left|right)(?![a-z])", ""),
    (r"\\leq?(?![a-z])", "≤"),
    (r"\\cdot(?![a-z])", "×"),
    (r"\^(\d)(?!\d)", r"^{\1}"),
    (r"(?<=\d),(?=\d{3})", ""),
    (r"\bFind\b", "Determine"),
    (r"\bCompute\b", "Calculate"),
    (r"\bWhat is\b", "Find"),
    (r"\s+", " "),
)


def reformatted(text):
    for pattern, replacement in FORMATS:
        text = re.sub(pattern, replacement, text)
    return text


def renamed(text, rng):
    """Other letters for the variables, another name for the first person."""
    letters = sorted(set(re.findall(r"(?<![A-Za-z\\])[a-zA-Z](?![A-Za-z])", text)))
    letters = [letter for letter in letters if letter not in "aAIei"]
    new = rng.sample([x for x in "bcdghjkmnpqrstuvwxyz" if x not in letters], 3)
    to = dict(zip(letters[:3], new, strict=False))
    text = re.sub(
        r"(?<![A-Za-z\\])[a-zA-Z](?![A-Za-z])", lambda m: to.get(m[0], m[0]), text
    )
    first = re.match(r"([A-Z][a-z]{2,})(?='s|’s| [a-z]+s )", text)
    return text.replace(first[1], "Marlowe") if first else text


@pytest.fixture(scope="module")
def evaluation(shared_data) -> dict[str, Problem]:
    return {
        f"{name}/{problem.id}": problem
        for name in SETS
        for problem in load_benchmark(name, shared_data / "eval")
    }


@pytest.fixture(scope="module")
def train(shared_data):
    path = shared_data / "train" / "deepscaler_levels.jsonl"
    return [json.loads(line) for line in path.open()]


@pytest.fixture(scope="module")
def index(evaluation, train):
    texts = {name: problem.problem for name, problem in evaluation.items()}
    retrieval = Retrieval(texts, (row["problem"] for row in train))
    return retrieval, EvaluationIndex(texts)


def caught(index, evaluation, texts, answers):
    """The rows that one of the two ways finds, by their place."""
    retrieval, words = index
    found = set()
    for i, text in enumerate(texts):
        if words.near(screened(text)):
            found.add(i)
    return found | {
        match.row
        for match in retrieval.matches(texts)
        if agree(answers[match.row], evaluation[match.name].answers)
    }


def planted(kind, evaluation, rng):
    if kind == "paraphrase":
        rows = [json.loads(line) for line in PARAPHRASES.open()]
        return [(row["of"], row["problem"]) for row in rows]
    names = rng.sample(sorted(evaluation), 50)
    make = {"format": reformatted, "renamed": lambda text: renamed(text, rng)}[kind]
    return [(name, make(evaluation[name].problem)) for name in names]


@pytest.mark.parametrize(
    ("kind", "least"),
    [("format", 48), ("renamed", 48), ("paraphrase", 40)],
)
def test_fifty_rewordings_of_each_kind(index, evaluation, kind, least):
    rows = planted(kind, evaluation, random.Random(kind))
    answers = [evaluation[name].answers for name, _ in rows]
    found = caught(index, evaluation, [text for _, text in rows], answers)
    missed = [rows[i] for i in range(50) if i not in found]
    assert len(found) >= least, missed


def test_of_sound_rows_hardly_any_goes(index, evaluation, train):
    rows = [row for row in train[::13] if row["answer"]]
    texts, answers = zip(*((r["problem"], (r["answer"],)) for r in rows), strict=True)
    found = caught(index, evaluation, texts, answers)
    assert len(rows) > 2900 and len(found) <= 0.005 * len(rows)


def test_numbers_may_be_words_and_variables_do_not_matter():
    found = Retrieval(
        {"set/0": "Tom buys three red pens for 1,200 cents. Find the price $x$."},
        ["How many trees?", "Pens are sold by a shop in the town."],
    ).matches(["Tom bought 3 pens, all red, for 1200 cents. Determine the price $p$."])
    # Of three texts one has each: 2 log 2 of weight, and a half of 1 nat. Were "three"
    # no number, (log 2 + 1/2) / (2 log 2 + 1) = 0.5.
    assert [match.name for match in found] == ["set/0"]
    assert found[0].numbers == pytest.approx(0.79, abs=0.01)


@pytest.mark.parametrize(("number", "rewordings"), [("2", 0), ("1729", 1)])
def test_a_number_says_as_much_as_it_is_rare(number, rewordings):
    asked = f"For positive real numbers with product {number}, find the least sum."
    other = "All roots are positive real numbers. What polynomial of degree"
    other += f" {number} is least?"
    trees = [f"How old are {n} and 2 trees of the town?" for n in range(100, 140)]
    found = Retrieval({"set/0": asked}, [*trees, other]).matches([other])
    # The same share of the numbers, all of them; without their weights both match.
    assert [match.name for match in found] == ["set/0"] * rewordings
