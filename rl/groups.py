"""What a group of completions is worth: information, advantages, token weights."""

from collections.abc import Sequence

import numpy as np

from rl.types import Group

ADVANTAGES = ("std", "mean")
AGGREGATIONS = ("token", "group", "sequence", "constant")


def informative(group: Group) -> bool:
    """Some right and some wrong, by raw accuracy (DAPO, arXiv 2503.14476, eq. 11).

    Shaped rewards have no say: an all-wrong group of unequal lengths teaches nothing
    about being right.
    """
    return bool(group.correct.any() and not group.correct.all())


def advantages(rewards: np.ndarray, *, scale: str) -> np.ndarray:
    """Group-relative advantages (GRPO, arXiv 2402.03300, section 4.1.2).

    Args:
      rewards: float `[G]`, shaped.
      scale: "std" divides by the group's standard deviation (ddof 1) plus 1e-6; "mean"
        only subtracts the mean (Dr. GRPO, arXiv 2503.20783).

    Returns:
      float64 `[G]`.
    """
    rewards = np.asarray(rewards, np.float64)
    centred = rewards - rewards.mean()
    if scale == "mean":
        return centred
    return centred / (rewards.std(ddof=1) + 1e-6)


def token_weights(
    groups: Sequence[Group], *, aggregation: str, constant: int
) -> list[np.ndarray]:
    """The weight in the loss of each token of each completion of a mini-batch.

    The loss is the weighted sum over all tokens, so these are the whole of what
    "averaging" means, counted here over the whole mini-batch:

    * token: 1 / all tokens (DAPO, verl);
    * group: 1 / (groups * tokens of the group), the paper's formula read literally;
    * sequence: 1 / (completions * tokens of the completion) (GRPO);
    * constant: 1 / (completions * `constant`) (Dr. GRPO).

    Returns:
      For each group, float64 `[G]`.
    """
    lengths = [np.array([len(c.token_ids) for c in g.completions]) for g in groups]
    tokens = sum(int(n.sum()) for n in lengths)
    completions = sum(map(len, lengths))
    if aggregation == "token":
        return [np.full(len(n), 1 / tokens) for n in lengths]
    if aggregation == "group":
        return [np.full(len(n), 1 / (len(groups) * n.sum())) for n in lengths]
    if aggregation == "sequence":
        return [1 / (completions * n) for n in lengths]
    if aggregation == "constant":
        return [np.full(len(n), 1 / (completions * constant)) for n in lengths]
    raise ValueError(
        f"objective.aggregation={aggregation!r}: must be one of {AGGREGATIONS}"
    )
