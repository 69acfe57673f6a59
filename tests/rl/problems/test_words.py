import collections
import re

import pytest

from rl.problems.words import _NAMES, _WORDS, problems

PHRASES = [word for of_key in _WORDS.values() for word in of_key]


def skeleton(text):
    """A problem without its names, words and numbers."""
    for word in sorted([*_NAMES, *PHRASES], key=len, reverse=True):
        text = re.sub(rf"\b{word}\b", "_", text)
    return re.sub(r"\d+", "#", text)


@pytest.fixture(scope="module")
def drawn():
    return {
        split: problems(split=split, count=3000, seed=0)
        for split in ("train", "held_out")
    }


def test_no_wording_is_in_both_splits(drawn):
    wordings = {
        split: {skeleton(p.problem) for p in of_split}
        for split, of_split in drawn.items()
    }
    assert not wordings["train"] & wordings["held_out"]
    assert (len(wordings["train"]), len(wordings["held_out"])) == (63, 12)


def test_problems_are_whole_and_differ(drawn):
    for split, of_split in drawn.items():
        assert len({p.problem for p in of_split}) == len({p.id for p in of_split})
        assert not any(set("{}*") & set(p.problem) for p in of_split)
        assert all(re.fullmatch(r"[1-9]\d*", p.answers[0]) for p in of_split)
        levels = collections.Counter(p.level for p in of_split)
        assert levels == {1: 1000, 2: 1000, 3: 1000}
        assert problems(split=split, count=3000, seed=0) == of_split
    assert problems(split="train", count=10, seed=1) != drawn["train"][:10]


READINGS = {
    r"has (\d+) \w+\. \w+ [\w ]+ (\d+) more \w+\. How many": lambda a, b: a + b,
    r"are (\d+) \w+ on the table and (\d+) \w+ on the floor": lambda a, b: a + b,
    r"(\d+) \w+ on Monday and (\d+) \w+ on Tuesday\. How": lambda a, b: a + b,
    r"(\d+) \w+ into an empty sack\. .* puts in (\d+)\.": lambda a, b: a + b,
    r"cook uses (\d+) \w+ for lunch and (\d+) for dinner": lambda a, b: a + b,
    r"(\d+) days in April and on (\d+) days in May": lambda a, b: a + b,
    r"(\d+) miles to the lake and (\d+) miles on": lambda a, b: a + b,
    r"(\d+) birds on a roof\. Then (\d+) birds landed": lambda a, b: a + b,
    r"^[A-Z]\w+ has (\d+) \w+\. \w+ [\w ]+ (\d+) of them\. How many": lambda a, b: (
        a - b
    ),
    r"(\d+) birds in a tree\. (\d+) of them fly away": lambda a, b: a - b,
    r"rope is (\d+) feet long\. \w+ cuts off (\d+) feet": lambda a, b: a - b,
    r"had (\d+) \w+\. Now \w+ has (\d+)\.": lambda a, b: b - a,
    r"book has (\d+) chapters\. \w+ has finished (\d+)": lambda a, b: a - b,
    r"jumps (\d+) feet and \w+ jumps (\d+)": lambda a, b: a - b,
    r"has (\d+) \w+ and \w+ has (\d+)\. How many fewer": lambda a, b: a - b,
    r"buys (\d+) \w+ for (\d+) dollars each\. How many": lambda a, b: a * b,
    r"runs (\d+) miles every day\. .* in (\d+) days": lambda a, b: a * b,
    r"wall has (\d+) rows of (\d+) tiles": lambda a, b: a * b,
    r"One ticket costs (\d+) dollars\. .* do (\d+) tickets": lambda a, b: a * b,
    r"ribbon of (\d+) inches into (\d+) equal": lambda a, b: a / b,
    r"(\d+) students sit in (\d+) equal rows": lambda a, b: a / b,
    r"machine makes (\d+) \w+ in (\d+) hours": lambda a, b: a / b,
    r"has (\d+) \w+\. \w+ has (\d+) \w+ more than \w+\. How many \w+ does": (
        lambda a, b: a + b
    ),
    r"has (\d+) \w+\. \w+ [\w ]+ (\d+) more and then [\w ]+? (\d+)\. How": (
        lambda a, b, c: a + b - c
    ),
    r"^\w+ has (\d+) \w+ with (\d+) \w+ in each\. There are (\d+) more": (
        lambda a, b, c: a * b + c
    ),
    r"has (\d+) \w+\. \w+ keeps (\d+) and shares the rest .* among (\d+)": (
        lambda a, b, c: (a - b) / c
    ),
    r"has (\d+) \w+\. \w+ [\w ]+ (\d+) of them and then [\w ]+ (\d+) more\.": (
        lambda a, b, c: a - b - c
    ),
    r"has (\d+) \w+ and [\w ]+ (\d+) more\. Then \w+ brings (\d+)": (
        lambda a, b, c: a + b + c
    ),
    r"(\d+) birds in one tree and (\d+) in another\. (\d+) of all": (
        lambda a, b, c: a + b - c
    ),
    r"has (\d+) dollars\. A shirt costs (\d+) dollars and a cap (\d+)": (
        lambda a, b, c: a - b - c
    ),
    r"tank holds (\d+) gallons of water\. (\d+) gallons leak .* pours in (\d+)": (
        lambda a, b, c: a - b + c
    ),
    r"mows (\d+) lawns for (\d+) dollars each and had (\d+)": (
        lambda a, b, c: a * b + c
    ),
    r"scores (\d+) goals .*, (\d+) in the next and (\d+) in the last": (
        lambda a, b, c: a + b + c
    ),
    r"has (\d+) \w+, [\w ]+ (\d+) and finds (\d+)": lambda a, b, c: a - b + c,
    r"(\d+) \w+ in a chest\. (\d+) are old, (\d+) are broken": (
        lambda a, b, c: a - b - c
    ),
    r"has (\d+) \w+ with (\d+) \w+ in each\. \w+ [\w ]+ (\d+) more \w+ and then "
    r"[\w ]+? (\d+)\.": lambda a, b, c, d: a * b + c - d,
    r"has (\d+) \w+\. \w+ has (\d+) more than \w+\. They find (\d+) more": (
        lambda a, b, c: a + a + b + c
    ),
    r"has (\d+) \w+ and \w+ has (\d+) \w+\. \w+ [\w ]+? (\d+) and \w+ [\w ]+? "
    r"(\d+)\.": (lambda a, b, c, d: a + b - c - d),
    r"buys (\d+) \w+ for (\d+) dollars each and (\d+) mugs for (\d+)": (
        lambda a, b, c, d: a * b + c * d
    ),
    r"(\d+) ducks on a pond\. (\d+) fly off, then (\d+) come, and (\d+)": (
        lambda a, b, c, d: a - b + c + d
    ),
    r"has (\d+) dollars and spends (\d+) on food, (\d+) on a toy and (\d+)": (
        lambda a, b, c, d: a - b - c - d
    ),
    r"needs (\d+) \w+ and has (\d+) ": lambda a, b: a - b,
    r"shares (\d+) \w+ equally among (\d+) ": lambda a, b: a / b,
    r"has (\d+) \w+\. There are (\d+) \w+ in each": lambda a, b: a * b,
    r"buys (\d+) \w+ for (\d+) dollars each and a bag for (\d+)": (
        lambda a, b, c: a * b + c
    ),
    r"has (\d+) \w+\. \w+ has (\d+) \w+ more than \w+\. How many \w+ do they": (
        lambda a, b: a + a + b
    ),
    r"After giving (\d+) \w+ to \w+, \w+ has (\d+)\. How": lambda a, b: a + b,
    r"Of (\d+) \w+ on a shelf, (\d+) belong": lambda a, b: a - b,
    r"gives (\d+) \w+ to each of (\d+) friends": lambda a, b: a * b,
    r"(\d+) \w+ cost (\d+) dollars\. How": lambda a, b: b / a,
    r"puts (\d+) \w+ into \w+ of (\d+) each": lambda a, b: a / b,
    r"pays (\d+) dollars for a hat and a pen\. The hat costs (\d+)": lambda a, b: a - b,
    r"bakes (\d+) trays of (\d+) rolls\. On every tray (\d+) of": (
        lambda a, b, c: a * (b - c)
    ),
    r"buys (\d+) \w+ for (\d+) dollars each and pays with (\d+)": (
        lambda a, b, c: c - a * b
    ),
    r"has (\d+) \w+, which is (\d+) more than \w+ has": lambda a, b: a + a - b,
    r"has (\d+) \w+\. \w+ has (\d+) times as many": lambda a, b: a + a * b,
    r"makes (\d+) cakes .* and (\d+) after noon, .* in (\d+) days": (
        lambda a, b, c: (a + b) * c
    ),
    r"needs (\d+) dollars for a bike and has (\d+)\. .* for (\d+) dollars a": (
        lambda a, b, c: (a - b) / c
    ),
    r"lays (\d+) \w+ into (\d+) equal piles and adds (\d+)": (
        lambda a, b, c: a / b + c
    ),
    r"has (\d+) tables with (\d+) .* (\d+) tables with (\d+)": (
        lambda a, b, c, d: a * b + c * d
    ),
    r"has (\d+) \w+, gives (\d+) to .* and (\d+) to a .* among (\d+)": (
        lambda a, b, c, d: (a - b - c) / d
    ),
    r"Monday \w+ runs (\d+) miles, on Tuesday (\d+) .* Friday (\d+)": (
        lambda a, b, c: a + a + b + c
    ),
    r"sells (\d+) \w+ for (\d+) dollars each, and had (\d+) .* pays (\d+)": (
        lambda a, b, c, d: a * b + c - d
    ),
    r"Each of (\d+) children brings (\d+) ": lambda a, b: a * b,
    r"There are (\d+) people on .* (\d+) people get off and (\d+) get on": (
        lambda a, b, c: a - b + c
    ),
    r"class of (\d+) girls and (\d+) boys .* (\d+) boys are ill .* but (\d+) parents": (
        lambda a, b, c, d: a + b - c + d
    ),
}


@pytest.mark.parametrize("reading", READINGS)
def test_the_answer_is_what_a_reader_finds(drawn, reading):
    both = [*drawn["train"], *drawn["held_out"]]
    read = [(m, p) for p in both if (m := re.search(reading, p.problem))]
    assert len(read) > 20
    for match, p in read:
        assert READINGS[reading](*map(int, match.groups())) == int(p.answers[0]), p


def test_every_wording_that_is_trained_on_has_one_reading(drawn):
    for p in drawn["train"]:
        found = [reading for reading in READINGS if re.search(reading, p.problem)]
        assert len(found) == 1, (p.problem, found)


def test_larger_numbers_and_fewer_steps():
    large = problems(split="held_out", count=200, steps=(2,), most=99, seed=3)
    assert {p.level for p in large} == {2}
    assert max(int(n) for p in large for n in re.findall(r"\d+", p.problem)) > 60


@pytest.mark.failure(33)
def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="split='test'"):
        problems(split="test", count=1)
    with pytest.raises(ValueError, match=r"steps=\(4,\)"):
        problems(split="train", count=1, steps=(4,))
