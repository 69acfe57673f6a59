"""Sums of which most groups have no signal, to measure which problems are drawn."""

import dataclasses

from rl.problems import arithmetic
from rl.types import Problem
from rollout.seeds import generator


def problems(
    *, count: int, easy: float, hard: float, held_out: int, seed: int
) -> list[Problem]:
    """Return `count` training problems of `arithmetic.problems(held_out, seed)`.

    For a share of them (`easy`) any answer is right, for another (`hard`) none is.
    """
    sums = arithmetic.problems(split="train", held_out=held_out, seed=seed)
    random = generator(seed)
    chosen = [sums[i] for i in sorted(random.permutation(len(sums))[:count])]
    top = 2 * arithmetic.LIMIT
    golds = tuple(str(value) for value in range(top)), (str(top),)
    kinds = [easy, easy + hard]
    uneven = []
    for problem, kind in zip(chosen, random.random(count), strict=True):
        place = sum(kind >= edge for edge in kinds)
        answers = (*golds, problem.answers)[place]
        uneven.append(dataclasses.replace(problem, answers=answers, level=None))
    return uneven
