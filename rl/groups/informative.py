"""Whether a group of completions holds a signal, by which the filter decides."""

from typing import Literal

import numpy as np

from rl.types import Group

FilterOn = Literal["correct", "reward"]


def informative(group: Group, *, on: FilterOn = "correct") -> bool:
    """Whether completions of a group differ in what they are worth.

    Args:
      group: with one completion at least.
      on: "correct": some right and some wrong (DAPO, arXiv 2503.14476, eq. 11);
        "reward": raw rewards differ, for rewards with more than two values. Shaped
        rewards have no say: an all-wrong group of unequal lengths teaches nothing about
        being right.
    """
    if on == "reward":
        return bool(np.ptp(group.raw) > 0)
    return bool(group.correct.any() and not group.correct.all())
