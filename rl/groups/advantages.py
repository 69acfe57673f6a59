"""Advantages: what each completion of a group is worth relative to the others.

A function of one group. It takes what it names in its signature:

    rewards  float64 `[G]`, shaped
    correct  bool `[G]`, raw accuracy
    lengths  int `[G]`, tokens of each completion
    completions  the `Completion` records `[G]`, with `token_ids`
    batch    the rewards `[G]` of every group of the step, this one among them

and returns `[G]` numbers, one for all tokens of each completion, or a list of G arrays
with a number for each token. G may differ from group to group: completions without a
verdict are left out before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64

from rl.problems.functions import argument_names, load_named
from rl.types import Group

# `[G]`, or an array of each completion.
Advantages = np.ndarray | Sequence[np.ndarray]
Advantage = Callable[..., Advantages]
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
    "completions": lambda group: group.completions,
}


def load_advantage(
    function: str,
) -> Callable[[Sequence[Group]], list[Advantages]]:
    """The advantages that a config names.

    Args:
      function: one of `ADVANTAGES`, or a user's "module:function".

    Returns:
      A function from a step's groups to the advantages of each, see
      `check_advantages`.

    Raises:
      ValueError: one line that names the key and what is wrong.
    """
    advantage = load_named(function, ADVANTAGES, key="config.objective.advantage")
    key = f"config.objective.advantage={function!r}"
    named = argument_names(advantage, (*_GIVEN, "batch"), key=key)

    def of_groups(groups):
        batch = [_GIVEN["rewards"](group) for group in groups]
        return [of_group(group, batch) for group in groups]

    def of_group(group, batch):
        given = {name: of(group) for name, of in _GIVEN.items()} | {"batch": batch}
        values = advantage(**{name: given[name] for name in named})
        return check_advantages(values, group, key=key)

    return of_groups


def check_advantages(
    values: Sequence[Any] | np.ndarray, group: Group, *, key: str
) -> Advantages:
    """Return the advantage of each completion, `[]` or one for each of its tokens.

    Raises:
      ValueError: there is not one for each, or one is not finite; it names the problem.
    """
    parts = [np.asarray(value, np.float64) for value in values]
    shapes = [((), (len(c.token_ids),)) for c in group.completions]
    if len(parts) != len(shapes) or not all(
        part.shape in allowed and np.isfinite(part).all()
        for part, allowed in zip(parts, shapes, strict=False)
    ):
        raise ValueError(
            f"{key}: gave {[part.tolist() for part in parts]} for the {len(shapes)}"
            f" completions of problem {group.problem.id!r}"
        )
    return np.array(parts) if all(not part.ndim for part in parts) else parts
