import collections
import hashlib
import json
import re

import pytest

from rl.problems.words import _NAMES, _WORDS, problems

PRONOUNS = {"he": "he", "his": "he", "she": "she", "her": "she"}
DRAWN = [*_NAMES, *(word for of_key in _WORDS.values() for word in of_key), *PRONOUNS]
SLOT = re.compile(
    rf"\b({'|'.join(sorted(DRAWN, key=len, reverse=True))})\b", re.IGNORECASE
)
COUNTS = {"train": 12_000, "held_out": 3_600}


def skeleton(text):
    """A problem without its names, pronouns, words and numbers."""
    return re.sub(r"\d+", "#", SLOT.sub("_", text))


@pytest.fixture(scope="module")
def drawn():
    return {
        split: problems(split=split, count=count, seed=0)
        for split, count in COUNTS.items()
    }


def first_name(text):
    return next((word for word in re.findall(r"\w+", text) if word in _NAMES), None)


def test_no_wording_is_in_both_splits(drawn):
    stories = {
        split: problems(split=split, count=count // 6, levels=(5,))
        for split, count in COUNTS.items()
    }
    for of_both, sizes in ((drawn, (155, 48)), (stories, (51, 7))):
        train, held_out = (
            {skeleton(p.problem) for p in of_both[split]} for split in COUNTS
        )
        assert not train & held_out and (len(train), len(held_out)) == sizes


def test_problems_are_whole_and_differ(drawn):
    for split, of_split in drawn.items():
        assert len({p.problem for p in of_split}) == len({p.id for p in of_split})
        assert not any(set("{}*") & set(p.problem) for p in of_split)
        assert all(re.fullmatch(r"[1-9]\d*", p.answers[0]) for p in of_split)
        levels = collections.Counter(p.level for p in of_split)
        assert levels == dict.fromkeys((1, 2, 3), COUNTS[split] // 3)
        assert problems(split=split, count=COUNTS[split], seed=0) == of_split
    assert problems(split="train", count=10, seed=1) != drawn["train"][:10]


# Readings of some of the wordings, written without looking at the templates' answers:
# their numbers are a, b, c and d.
READINGS = {
    r"has (\d+) \w+\. \w+ [\w ]+ (\d+) more \w+\. How many": "a + b",
    r"^[A-Z]\w+ has (\d+) \w+\. \w+ [\w ]+ (\d+) of them\. How many": "a - b",
    r"had (\d+) \w+\. Now \w+ has (\d+)\.": "b - a",
    r"wall has (\d+) rows of (\d+) tiles": "a * b",
    r"machine makes (\d+) \w+ in (\d+) hours": "a / b",
    r"After giving (\d+) \w+ to \w+, \w+ has (\d+)\. How": "a + b",
    r"(\d+) \w+ cost (\d+) dollars\. How": "b / a",
    r"ate (\d+) grapes and \w+ ate (\d+)": "a + b",
    r"had (\d+) coins\. .* walk of \d+ miles, and then had (\d+)": "b - a",
    r"suit costs (\d+) dollars, and a coat (\d+) dollars less": "a - b",
    r"(\d+) birds in one tree and (\d+) in another\. (\d+) of all": "a + b - c",
    r"has (\d+) \w+\. \w+ keeps (\d+) and shares the rest .* among (\d+)": "(a-b) / c",
    r"bakes (\d+) trays of (\d+) rolls\. On every tray (\d+) of": "a * (b - c)",
    r"buys (\d+) \w+ for (\d+) dollars each and pays with (\d+)": "c - a * b",
    r"has (\d+) \w+\. \w+ has (\d+) times as many and (\d+) more": "a * b + c",
    r"has (\d+) \w+. \w+ has (\d+) more than \w+\. They find (\d+) more": "2*a + b + c",
    r"has (\d+) tables with (\d+) .* (\d+) tables with (\d+)": "a * b + c * d",
    r"bakes (\d+) rolls, burns (\d+), eats (\d+), .* bags of (\d+)": "(a - b - c) / d",
}


def test_the_same_arguments_make_the_same_problems():
    """docs/results/smollm2.md is about these problems."""
    made = problems(split="train", count=3_000, levels=(1, 2, 3, 4, 5), seed=0)
    made += problems(split="held_out", count=700, levels=(1, 2, 3, 4, 5), seed=1)
    text = json.dumps([(p.id, p.problem, p.answers, p.meta) for p in made])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "7695d5b17fe93672"


@pytest.mark.parametrize("reading", READINGS)
def test_the_answer_is_what_a_reader_finds(drawn, reading):
    found = 0
    for p in [*drawn["train"], *drawn["held_out"]]:
        if match := re.search(reading, p.problem):
            found += 1
            numbers = dict(zip("abcd", map(int, match.groups()), strict=False))
            assert eval(READINGS[reading], numbers) == int(p.answers[0]), p
    assert found > 20


def test_a_pronoun_goes_with_the_first_name_of_its_story(drawn):
    met = collections.Counter()
    for p in [*drawn["train"], *drawn["held_out"]]:
        used = {PRONOUNS.get(word) for word in re.findall(r"\w+", p.problem.lower())}
        used.discard(None)
        assert not used or used == {_NAMES[first_name(p.problem)]}, p
        met.update(used)
    assert min(met["he"], met["she"]) > 1000


def test_larger_numbers_are_as_often_small_and_in_the_same_wordings(drawn):
    mixed = problems(split="train", count=3_000, levels=(4,), most=10, seed=3)
    of_one_step = {skeleton(p.problem) for p in drawn["train"] if p.level == 1}
    assert {skeleton(p.problem) for p in mixed} == of_one_step
    text = "\n".join(p.problem for p in mixed)
    sizes = list(map(int, re.findall(r"^\w+ ate (\d+) grapes", text, re.M)))
    assert min(sizes) == 2 and 60 < max(sizes) <= 100
    # Evenly in their logarithm, 0.43 are at most 10; evenly in themselves, 0.09.
    assert 0.25 < sum(n <= 10 for n in sizes) / len(sizes) < 0.6


@pytest.mark.failure(33)
def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="split='test'"):
        problems(split="test", count=1)
    with pytest.raises(ValueError, match=r"levels=\(6,\)"):
        problems(split="train", count=1, levels=(6,))
