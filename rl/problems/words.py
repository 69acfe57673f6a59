"""Generates word problems from templates, for training a pretrained model.

The problems are small calculations of one to three steps, in everyday words. Templates,
names, objects and numbers are drawn at random. Held-out problems have their own
templates, so they measure whether learning transfers to other wordings. In some
problems a story holds more numbers than its question needs.
"""

import pathlib
import re
from typing import Annotated

import numpy as np

from configs.schema import Count, Range
from rl.types import Problem
from rollout.seeds import generator

_NAMES = dict(
    name.split(":")
    for name in (
        "Ada:she Ben:he Carla:she Dev:he Elena:she Farid:he Grace:she Hugo:he Ines:she "
        "Jamal:he Kira:she Leo:he Maya:she Nils:he Olga:she Pedro:he Quinn:he Rosa:she "
        "Sami:he Tara:she Umar:he Vera:she Wang:he Yara:she Zoe:she Anton:he Bella:she "
        "Chen:he Dora:she Emil:he Fatima:she George:he Hana:she Ivan:he Julia:she "
        "Karim:he Lena:she Marco:he Nora:she Oscar:he"
    ).split()
)
_WORDS = {
    "things": "apples pencils marbles stickers books shells coins cookies cards stamps "
    "balloons flowers oranges buttons stones toys cups candles beads ribbons crayons "
    "peaches tickets nuts bottles hats eggs muffins plums keys".split(),
    "places": "boxes bags baskets jars drawers crates trays bowls packs bins".split(),
    "gets": ["finds", "buys", "gets", "is given", "collects", "wins", "receives"],
    "loses": ["gives away", "loses", "sells", "throws out", "drops", "donates"],
}


def _read_templates() -> dict[str, dict[int, dict[str, str]]]:
    """Returns `{split: {level: {template: answer}}}`; answers are expressions."""
    text = pathlib.Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    found: dict[str, dict[str, dict[str, str]]] = {}
    templates: dict[str, str] = {}
    story = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("["):
            split, part = line.strip("[]").split(" ")
            templates = found.setdefault(split, {}).setdefault(part, {})
        elif " | " in line:
            answer, _, sentence = line.strip().partition(" | ")
            template = f"{story} {sentence}" if line.startswith(" ") else sentence
            templates[template] = answer
        else:
            story = line
    return {
        split: {
            **{level: parts[str(level)] for level in (1, 2, 3)},
            4: parts["1"],  # with larger numbers
            5: parts["stories"],
        }
        for split, parts in found.items()
    }


_TEMPLATES = _read_templates()


def problems(
    *,
    split: str,
    count: Count,
    levels: tuple[int, ...] = (1, 2, 3),
    most: Annotated[int, Range(4)] = 20,
    seed: int = 0,
) -> list[Problem]:
    """Draws word problems with distinct texts.

    Args:
      split: "train" or "held_out"; the splits have no template in common.
      count: number of problems, distributed evenly over the levels.
      levels: problems of level 1, 2 and 3 have 1, 2 and 3 steps. Level 4 has one step
        with larger numbers. Level 5 has stories, most with unused numbers.
      most: largest number that is drawn; the smallest is 2. Factors of a product are at
        most half of `most`. At levels 4 and 5 both maxima are ten times as large, and
        the logarithms of the numbers are uniform. Sums and products may be larger.

    Raises:
      ValueError: an argument is not valid, or too few distinct texts are found.
    """
    if split not in _TEMPLATES or not set(levels) <= {1, 2, 3, 4, 5} or not levels:
        raise ValueError(
            f"split={split!r}, levels={levels!r}: split must be train or held_out,"
            " and levels one or more numbers from 1 to 5"
        )
    rng, found = generator(seed), dict[str, Problem]()
    for _ in range(20 * count):
        if len(found) == count:
            break
        level = levels[len(found) % len(levels)]
        text, answer, number = _draw(_TEMPLATES[split][level], most, level >= 4, rng)
        found.setdefault(
            text,
            Problem(
                id=f"{split}-{level}-{most}-{len(found)}",
                problem=text,
                answers=(answer,),
                source="words",
                level=level,
                meta={"template": f"{split}-{level}-{number}"},
            ),
        )
    if len(found) < count:
        raise ValueError(
            f"count={count}: must be at most {len(found)}, the number of different"
            f" problems found with most={most}; lower count or raise most"
        )
    return list(found.values())


def _draw(
    templates: dict[str, str], most: int, larger: bool, rng: np.random.Generator
) -> tuple[str, str, int]:
    """Draws a problem; returns its text, its answer and the index of its template."""
    index = int(rng.integers(len(templates)))
    template = list(templates)[index]
    who, other = rng.choice([*_NAMES], 2, replace=False).tolist()
    words = {key: str(rng.choice(of_key)) for key, of_key in _WORDS.items()}
    he, his = ("he", "his") if _NAMES[who] == "he" else ("she", "her")
    words |= {"who": who, "other": other, "he": he, "He": he.title(), "his": his}
    things = _WORDS["things"]
    words["others"] = things[things.index(words["things"]) - 1]
    multiplied = set("".join(re.findall(r"\w\*\w", template + templates[template])))

    def number(most: int) -> int:
        if larger:
            return int(2 * (5 * most + 0.5) ** rng.random())
        return int(rng.integers(2, most + 1))

    numbers = {
        name: number(most // 2 if name in multiplied else most) for name in "abcd"
    }

    def value(expression: str) -> str:
        # Safe: expressions come from words.txt only.
        return words.get(expression) or str(eval(expression, {}, numbers))

    text = re.sub(r"\{(.*?)\}", lambda slot: value(slot[1]), template)
    return text, value(templates[template]), index
