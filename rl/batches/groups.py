"""What a group of completions is worth: information, and its tokens' weights."""

from collections.abc import Sequence
from typing import Literal, assert_never

import numpy as np
from jaxtyping import Float64

from rl.types import Group

FilterOn = Literal["correct", "reward"]
Aggregation = Literal["token", "group", "sequence", "constant"]


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


def token_weights(
    groups: Sequence[Group], *, aggregation: Aggregation, constant: int
) -> list[Float64[np.ndarray, " _"]]:
    """The weight in the loss of each token of each completion of a mini-batch.

    The loss is the weighted sum over all tokens, so these are the whole of what
    "averaging" means, counted here over the whole mini-batch:

    * token: 1 / all tokens (DAPO, verl);
    * group: 1 / (groups * tokens of the group), the paper's formula read literally;
    * sequence: 1 / (completions * tokens of the completion) (GRPO);
    * constant: 1 / (completions * `constant`) (Dr. GRPO).

    Returns:
      Those of each group, by completion.
    """
    lengths = [np.array([len(c.token_ids) for c in g.completions]) for g in groups]
    tokens = sum(int(n.sum()) for n in lengths)
    completions = sum(len(n) for n in lengths)
    if aggregation == "token":
        return [np.full(len(n), 1 / tokens) for n in lengths]
    if aggregation == "group":
        return [np.full(len(n), 1 / (len(groups) * n.sum())) for n in lengths]
    if aggregation == "sequence":
        return [1 / (completions * n) for n in lengths]
    if aggregation == "constant":
        return [np.full(len(n), 1 / (completions * constant)) for n in lengths]
    assert_never(aggregation)
