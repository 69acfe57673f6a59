"""What a group of completions is worth: information, and its tokens' weights."""

import dataclasses
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


def join(first: Group, rest: Group) -> Group:
    """Two parts of a group as the one that they are; weight and birth of the first."""
    names = dict.fromkeys([*first.components, *rest.components])

    def component(part, name):
        return part.components.get(name, np.full(len(part.raw), np.nan, np.float32))

    def both(a, b):
        return np.concatenate([a, b])

    return dataclasses.replace(
        first,
        completions=first.completions + rest.completions,
        correct=both(first.correct, rest.correct),
        raw=both(first.raw, rest.raw),
        rewards=both(first.rewards, rest.rewards),
        rules=first.rules + rest.rules,
        components={
            name: both(component(first, name), component(rest, name)) for name in names
        },
    )


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

    A group that stands for more than itself (`Group.weight`) is counted so often, above
    and below.

    Returns:
      Those of each group, by completion.
    """
    lengths = [np.array([len(c.token_ids) for c in g.completions]) for g in groups]
    counts = [group.weight for group in groups]
    many = list(zip(counts, lengths, strict=True))
    tokens = sum(count * int(n.sum()) for count, n in many)
    completions = sum(count * len(n) for count, n in many)
    if aggregation == "token":
        return [np.full(len(n), count / tokens) for count, n in many]
    if aggregation == "group":
        return [np.full(len(n), count / (sum(counts) * n.sum())) for count, n in many]
    if aggregation == "sequence":
        return [count / (completions * n) for count, n in many]
    if aggregation == "constant":
        return [np.full(len(n), count / (completions * constant)) for count, n in many]
    assert_never(aggregation)
