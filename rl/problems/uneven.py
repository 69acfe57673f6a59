"""Generates sums most of which give no training signal, to test sampling policies."""

import dataclasses

from rl.problems import arithmetic
from rl.types import Problem
from rollout.seeds import generator


def problems(
    *, count: int, easy: float, hard: float, held_out: int, seed: int
) -> list[Problem]:
    """Returns training problems of `rl.problems.arithmetic` with modified answers.

    Args:
      count: number of problems.
      easy: share of problems for which every number from 0 to 199 is correct.
      hard: share of problems for which only 200 is correct, which is not their sum.
      held_out: number of held-out pairs, as in `arithmetic.problems`.
      seed: seed of the split and of the selection.
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
