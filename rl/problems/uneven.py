"""Generates sums for tests of sampling policies; many of them give no gradient."""

import dataclasses

from rl.problems import arithmetic
from rl.types import Problem
from rollout.seeds import generator


def problems(
    *, count: int, easy: float, hard: float, held_out: int, seed: int
) -> list[Problem]:
    """Returns `count` training problems of `rl.problems.arithmetic`.

    An expected share `easy` of the problems accepts every number from 0 to 199. An
    expected share `hard` accepts only 200, although the largest sum is 198.
    """
    sums = arithmetic.problems(split="train", held_out=held_out, seed=seed)
    random = generator(seed)
    chosen = [sums[i] for i in sorted(random.permutation(len(sums))[:count])]
    top = 2 * arithmetic.LIMIT
    every = tuple(str(value) for value in range(top))
    uneven = []
    for problem, kind in zip(chosen, random.random(count), strict=True):
        answers = problem.answers if kind >= easy + hard else (str(top),)
        answers = every if kind < easy else answers
        uneven.append(dataclasses.replace(problem, answers=answers, level=None))
    return uneven
