"""Sums most of whose groups teach nothing: what draws that teach are measured on.

A share is right whatever the answer and a share never, as problems are that a policy
has long learnt, or that no sampling will solve.
"""

import dataclasses

from rl.problems import arithmetic
from rl.types import Problem
from rollout.seeds import generator


def problems(
    *, count: int, easy: float, hard: float, held_out: int, seed: int
) -> list[Problem]:
    """Sums of one level.

    Args:
      count: of them.
      easy: share of which any answer is right.
      hard: share of which none is.
      held_out: see `arithmetic.problems`, of whose training part they are.
      seed: of the parting, and of which ones.
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
