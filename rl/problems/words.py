"""Word problems made from templates: what a real pretrained model can learn on.

Small sums in everyday words, of one to three steps, without a download. Sentences,
names and things are drawn; held-out problems have templates of their own, so that what
is learnt must carry over to other wordings.
"""

import re
from typing import Annotated

import numpy as np

from configs.schema import Count, Range
from rl.types import Problem
from rollout.seeds import generator

_NAMES = (
    "Ada Ben Carla Dev Elena Farid Grace Hugo Ines Jamal Kira Leo Maya Nils Olga Pedro "
    "Quinn Rosa Sami Tara Umar Vera Wang Yara Zoe Anton Bella Chen Dora Emil Fatima "
    "George Hana Ivan Julia Karim Lena Marco Nora Oscar"
).split()
_WORDS = {
    "things": "apples pencils marbles stickers books shells coins cookies cards stamps "
    "balloons flowers oranges buttons stones toys cups candles beads ribbons crayons "
    "peaches tickets nuts bottles hats eggs muffins plums keys".split(),
    "places": "boxes bags baskets jars drawers crates trays bowls packs bins".split(),
    "gets": ["finds", "buys", "gets", "is given", "collects", "wins", "receives"],
    "loses": ["gives away", "loses", "sells", "throws out", "drops", "donates"],
}

# A template with its answer, by the number of steps. {who} and {other} are names, {a}
# to {d} numbers; any other braces hold an expression in these, so that what is taken
# away or shared out always comes out whole and positive. Many of them: of few, a policy
# can know by heart which sum goes with which, and need not read.
_TRAIN = {
    1: {
        "{who} has {a} {things}. {who} {gets} {b} more {things}. How many {things} "
        "does {who} have now?": "a+b",
        "There are {a} {things} on the table and {b} {things} on the floor. How "
        "many {things} are there in all?": "a+b",
        "{who} has {a} {things}. {other} has {b} {things} more than {who}. How "
        "many {things} does {other} have?": "a+b",
        "{who} {gets} {a} {things} on Monday and {b} {things} on Tuesday. How many "
        "{things} is that?": "a+b",
        "{who} puts {a} {things} into an empty sack. Later {other} puts in {b}. How "
        "many {things} are in the sack?": "a+b",
        "A cook uses {a} {things} for lunch and {b} for dinner. How many {things} "
        "does the cook use?": "a+b",
        "It rained on {a} days in April and on {b} days in May. On how many days did "
        "it rain in all?": "a+b",
        "{who} walks {a} miles to the lake and {b} miles on to the village. How far "
        "does {who} walk, in miles?": "a+b",
        "There were {a} birds on a roof. Then {b} birds landed there. How many birds "
        "are on the roof now?": "a+b",
        "After giving {a} {things} to {other}, {who} has {b}. How many {things} did "
        "{who} have before?": "a+b",
        "{who} has {a+b} {things}. {who} {loses} {a} of them. How many {things} "
        "does {who} have left?": "b",
        "{who} needs {a+b} {things} and has {a} {things}. How many more {things} "
        "does {who} need?": "b",
        "There are {a+b} birds in a tree. {a} of them fly away. How many birds "
        "stay?": "b",
        "A rope is {a+b} feet long. {who} cuts off {a} feet. How many feet long is "
        "the rope now?": "b",
        "Of {a+b} {things} on a shelf, {a} belong to {who} and the others to {other}. "
        "How many belong to {other}?": "b",
        "{who} had {a} {things}. Now {who} has {a+b}. How many {things} did {who} "
        "get?": "b",
        "A book has {a+b} chapters. {who} has finished {a} of them. How many chapters "
        "are still to come?": "b",
        "{who} jumps {a+b} feet and {other} jumps {a}. By how many feet does {who} "
        "win?": "b",
        "{who} has {a+b} {things} and {other} has {a}. How many fewer does {other} "
        "have?": "b",
        "{who} pays {a+b} dollars for a hat and a pen. The hat costs {a} dollars. How "
        "many dollars does the pen cost?": "b",
        "{who} has {a} {places}. There are {b} {things} in each of them. How many "
        "{things} does {who} have?": "a*b",
        "{who} buys {a} {things} for {b} dollars each. How many dollars does {who} "
        "pay?": "a*b",
        "{who} runs {a} miles every day. How many miles does {who} run in {b} "
        "days?": "a*b",
        "A wall has {a} rows of {b} tiles. How many tiles are on the wall?": "a*b",
        "{who} gives {b} {things} to each of {a} friends. How many {things} does "
        "{who} give away?": "a*b",
        "One ticket costs {a} dollars. How many dollars do {b} tickets cost?": "a*b",
        "{who} shares {a*b} {things} equally among {a} friends. How many {things} "
        "does each friend get?": "b",
        "{who} cuts a ribbon of {a*b} inches into {a} equal pieces. How many inches "
        "long is each piece?": "b",
        "{a} {things} cost {a*b} dollars. How many dollars does one cost?": "b",
        "{a*b} students sit in {a} equal rows. How many students are in a row?": "b",
        "{who} puts {a*b} {things} into {places} of {a} each. How many {places} does "
        "{who} fill?": "b",
        "A machine makes {a*b} {things} in {a} hours. How many {things} does it make "
        "in an hour?": "b",
    },
    2: {
        "{who} has {a} {things}. {who} {gets} {b+c} more and then {loses} {c}. How "
        "many {things} does {who} have now?": "a+b",
        "{who} has {a} {places} with {b} {things} in each. There are {c} more "
        "{things} on the table. How many {things} are there?": "a*b+c",
        "{who} has {a} {things}. {other} has {b} {things} more than {who}. How "
        "many {things} do they have together?": "a+a+b",
        "{who} has {a*b+c} {things}. {who} keeps {c} and shares the rest equally "
        "among {a} friends. How many {things} does each friend get?": "b",
        "{who} buys {a} {things} for {b} dollars each and a bag for {c} dollars. "
        "How many dollars does {who} spend?": "a*b+c",
        "{who} has {a+b+c} {things}. {who} {loses} {a} of them and then {loses} "
        "{b} more. How many {things} are left?": "c",
        "{who} has {a} {things} and {gets} {b} more. Then {other} brings {c}. How "
        "many {things} are there now?": "a+b+c",
        "There are {a} birds in one tree and {b+c} in another. {c} of all these birds "
        "fly away. How many stay?": "a+b",
        "{who} has {a+b+c} dollars. A shirt costs {a} dollars and a cap {b}. How many "
        "dollars are left if {who} buys both?": "c",
        "{who} buys {a} {things} for {b} dollars each and pays with {a*b+c} dollars. "
        "How many dollars does {who} get back?": "c",
        "{who} bakes {a} trays of {b+c} rolls. On every tray {c} of them burn. How "
        "many rolls are not burnt?": "a*b",
        "A tank holds {a+b} gallons of water. {a} gallons leak out, and then {who} "
        "pours in {c}. How many gallons are in the tank?": "b+c",
        "{who} mows {a} lawns for {b} dollars each and had {c} dollars before. How "
        "many dollars does {who} have now?": "a*b+c",
        "{who} lays {a*b} {things} into {a} equal piles and adds {c} to the first. "
        "How many {things} are in the first pile?": "b+c",
        "A team scores {a} goals in its first game, {b} in the next and {c} in the "
        "last. How many goals is that?": "a+b+c",
        "{who} has {a} {things}. {other} has {b} times as many. How many {things} do "
        "they have together?": "a+a*b",
        "{who} has {a+b} {things}, which is {b} more than {other} has. How many "
        "{things} do they have together?": "a+b+a",
        "A baker makes {a} cakes before noon and {b} after noon, every day. How many "
        "cakes is that in {c} days?": "a*c+b*c",
        "{who} has {a+b} {things}, {loses} {a} and finds {c}. How many {things} does "
        "{who} have in the end?": "b+c",
        "{who} needs {a*b+c} dollars for a bike and has {c}. How many days must {who} "
        "work for {b} dollars a day?": "a",
        "There are {a+b+c} {things} in a chest. {a} are old, {b} are broken, and the "
        "others are new. How many are new?": "c",
    },
    3: {
        "{who} has {a} {places} with {b} {things} in each. {who} {gets} {c+d} more "
        "{things} and then {loses} {d}. How many {things} does {who} have "
        "now?": "a*b+c",
        "{who} has {a} {things}. {other} has {b} more than {who}. They find {c} "
        "more. How many {things} do they have together?": "a+a+b+c",
        "{who} has {a+c} {things} and {other} has {b+d} {things}. {who} {loses} "
        "{c} and {other} {loses} {d}. How many {things} do they have "
        "together?": "a+b",
        "{who} buys {a} {things} for {b} dollars each and {c} mugs for {d} dollars "
        "each. How many dollars does {who} spend?": "a*b+c*d",
        "There are {a+b} ducks on a pond. {a} fly off, then {c} come, and {d} more "
        "follow. How many ducks are on the pond?": "b+c+d",
        "{who} has {a+b+c+d} dollars and spends {a} on food, {b} on a toy and {c} on "
        "a gift. How many dollars are left?": "d",
        "{who} sells {a} {things} for {b} dollars each, and had {c+d} dollars before. "
        "Then {who} pays {d} dollars for a hat. How many dollars does {who} have "
        "now?": "a*b+c",
        "One room has {a} tables with {b} chairs each, another has {c} tables with "
        "{d} chairs each. How many chairs are in both?": "a*b+c*d",
        "{who} has {a*b+c+d} {things}, gives {c} to {other} and {d} to a neighbor, "
        "and shares the rest equally among {a} friends. How many {things} does each "
        "friend get?": "b",
        "On Monday {who} runs {a} miles, on Tuesday {b} miles more than on Monday, "
        "and on Friday {c} miles. How many miles does {who} run?": "a+a+b+c",
    },
}
_HELD_OUT = {
    1: {
        "Yesterday {who} picked {a} {things}, and today {who} picked {b}. How many "
        "{things} did {who} pick in these two days?": "a+b",
        "A shop had {a+b} {things} in the morning. During the day {a} were sold. "
        "How many {things} does the shop still have?": "b",
        "Each of {a} children brings {b} {things} to school. How many {things} do "
        "the children bring altogether?": "a*b",
        "A worker packs {a*b} {things} into {a} {places}, the same number into "
        "each. How many {things} go into one of them?": "b",
        "{who} is {a} years old, and {other} is {b} years older than {who}. How "
        "old is {other}?": "a+b",
        "{who} read {a+b} pages and {other} read {a} pages. How many more pages "
        "did {who} read than {other}?": "b",
    },
    2: {
        "A farmer picks {a} {things} in the morning and {b+c} in the afternoon, "
        "but {c} of them are bad. How many good {things} does the farmer "
        "have?": "a+b",
        "{who} earns {a} dollars an hour and works for {b} hours. A guest leaves "
        "{who} {c} dollars besides. How many dollars does {who} have?": "a*b+c",
        "There are {a+b} people on a bus. At the next stop {a} people get off and "
        "{c} get on. How many people are on the bus now?": "b+c",
        "{who} has {a} red, {b} blue and {c} green {things}. How many {things} "
        "does {who} have?": "a+b+c",
    },
    3: {
        "{who} saves {a} dollars a week for {b} weeks and gets {c+d} dollars from "
        "an aunt. A game costs {d} dollars. How many dollars are left after {who} "
        "buys it?": "a*b+c",
        "A class of {a} girls and {b+c} boys goes to the zoo. {c} boys are ill and "
        "stay at home, but {d} parents come along. How many people go?": "a+b+d",
    },
}
_TEMPLATES = {"train": _TRAIN, "held_out": _HELD_OUT}


def problems(
    *,
    split: str,
    count: Count,
    steps: tuple[int, ...] = (1, 2, 3),
    most: Annotated[int, Range(4)] = 20,
    seed: int = 0,
) -> list[Problem]:
    """Draws word problems, no two of them alike; the level is the number of steps.

    Args:
      split: "train" or "held_out", which have no template in common.
      count: of problems, as evenly over the steps as it goes.
      steps: any of 1, 2, 3.
      most: numbers are drawn from 2 to this, those that are multiplied to half of it.
        Sums of them may be larger.
      seed: of the draws.

    Raises:
      ValueError: another split, other steps, or more problems than there are.
    """
    if split not in _TEMPLATES or not set(steps) <= {1, 2, 3} or not steps:
        raise ValueError(
            f"split={split!r}, steps={steps!r}: the splits are train and held_out, the"
            " steps 1, 2 and 3"
        )
    rng, found = generator(seed), {}
    for _ in range(20 * count):
        if len(found) == count:
            break
        level = steps[len(found) % len(steps)]
        text, answer = _draw(_TEMPLATES[split][level], most, rng)
        found.setdefault(
            text,
            Problem(
                id=f"{split}-{level}-{most}-{len(found)}",
                problem=text,
                answers=(answer,),
                source="words",
                level=level,
            ),
        )
    if len(found) < count:
        raise ValueError(f"count={count}: only {len(found)} different problems found")
    return list(found.values())


def _draw(
    templates: dict[str, str], most: int, rng: np.random.Generator
) -> tuple[str, str]:
    """A problem's text and its answer."""
    template = list(templates)[rng.integers(len(templates))]
    who, other = rng.choice(_NAMES, 2, replace=False)
    words = {key: str(rng.choice(of_key)) for key, of_key in _WORDS.items()}
    words |= {"who": str(who), "other": str(other)}
    multiplied = set("".join(re.findall(r"\w\*\w", template + templates[template])))
    numbers = {
        name: int(rng.integers(2, (most // 2 if name in multiplied else most) + 1))
        for name in "abcd"
    }

    def value(expression: str) -> str:
        # Our own expressions, in four numbers.
        return words.get(expression) or str(eval(expression, {}, numbers))

    text = re.sub(r"\{(.*?)\}", lambda slot: value(slot[1]), template)
    return text, value(templates[template])
