"""Advantages: what each completion of a group is worth beside the others.

A function of one group. It takes what it names in its signature:

    rewards  float64 `[G]`, shaped
    correct  bool `[G]`, raw accuracy
    lengths  int `[G]`, tokens of each completion
    batch    the rewards `[G]` of every group of the step, this one among them

and returns `[G]` numbers, one for all tokens of each completion. G may differ from
group to group: completions without a verdict are left out before.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64

from rl.problems.functions import load_named
from rl.types import Group

Advantage = Callable[..., Float64[np.ndarray, " G"]]
_EPSILON = 1e-6


def std(rewards: Float[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """`(r - mean) / (std + 1e-6)`, the group's, std with ddof 1.

    Source: GRPO (arXiv 2402.03300) section 4.1.2.
    """
    return mean(rewards) / (rewards.std(ddof=1) + _EPSILON)


def mean(rewards: Float[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """`r - mean`: no group counts more for being nearly all right or all wrong.

    Source: Dr. GRPO (arXiv 2503.20783).
    """
    return rewards - rewards.mean()


def batch_std(
    rewards: Float[np.ndarray, " G"], batch: Sequence[Float[np.ndarray, " _"]]
) -> Float64[np.ndarray, " G"]:
    """`(r - mean) / (std + 1e-6)`, the std of `r - mean` over the step's completions.

    Source: ScaleRL (arXiv 2510.13786).
    """
    of_all = np.concatenate([mean(of_group) for of_group in batch])
    return mean(rewards) / (of_all.std() + _EPSILON)


def maxrl(correct: Bool[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """`(c - mean) / mean` of c = 1 where right, else 0; all 0 where none is right.

    Follows the gradient of log p(right), of which that of p(right) is the first order.
    It reads raw accuracy: a reward's scale and shaping have no say.

    Source: MaxRL (arXiv 2602.02710).
    """
    share = correct.mean()
    return (correct - share) / share if share else np.zeros(len(correct))


def leave_one_out(rewards: Float[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """`r - mean of the others`; 0 for a lone one.

    Source: RLOO (arXiv 2402.14740).
    """
    return mean(rewards) * (len(rewards) / max(len(rewards) - 1, 1))


ADVANTAGES: Mapping[str, Advantage] = {
    "std": std,
    "mean": mean,
    "batch_std": batch_std,
    "maxrl": maxrl,
    "leave_one_out": leave_one_out,
}

_GIVEN = {
    "rewards": lambda group: np.asarray(group.rewards, np.float64),
    "correct": lambda group: group.correct,
    "lengths": lambda group: np.array([len(c.token_ids) for c in group.completions]),
}


def load_advantage(
    function: str,
) -> Callable[[Sequence[Group]], list[Float64[np.ndarray, " _"]]]:
    """The advantages that a config names.

    Args:
      function: one of `ADVANTAGES`, or a user's "module:function".

    Returns:
      A function from a step's groups to the advantages of each. It raises ValueError
      where one is not finite, with the problem's id.

    Raises:
      ValueError: one line that names the key and what is wrong.
    """
    key = "config.objective.advantage"
    advantage = load_named(function, ADVANTAGES, key=key)
    named = inspect.signature(advantage).parameters.keys()
    for name in named - {*_GIVEN, "batch"}:
        raise ValueError(
            f"{key}={function!r}: takes {name!r}, which is none of"
            f" {', '.join(_GIVEN)}, batch"
        )

    def of_groups(groups):
        common = {"batch": [_GIVEN["rewards"](group) for group in groups]}
        return [of_group(group, common) for group in groups]

    def of_group(group, common):
        given = {name: of(group) for name, of in _GIVEN.items()} | common
        values = np.asarray(advantage(**{name: given[name] for name in named}))
        if values.shape != group.rewards.shape or not np.isfinite(values).all():
            raise ValueError(
                f"{key}={function!r}: gave {values.tolist()} for the"
                f" {len(group.rewards)} completions of problem {group.problem.id!r}"
            )
        return values

    return of_groups
