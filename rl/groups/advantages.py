"""Defines advantage functions, which compare the completions of a group.

An advantage function is called once per group, with the arguments that it names:

    rewards       float64 `[G]`, rewards after the length penalty
    correct       bool `[G]`, true for correct completions
    lengths       int `[G]`, number of tokens of each completion
    completions   the G `Completion` records, with `token_ids`
    step_rewards  list with the rewards `[G]` of each group of the step

The function returns one number per completion, or a list of G arrays with one number
per token. G may differ between groups: completions without a verdict are removed, and a
group may come from a stage with another group size.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64

from rl.problems.functions import by_name, load_named
from rl.types import Group

# An array `[G]`, or an array of token advantages for each completion.
Advantages = np.ndarray | Sequence[np.ndarray]
_EPSILON = 1e-6


def std(rewards: Float[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """Computes `(r - mean) / (std + 1e-6)` within the group, with ddof=1.

    Source: GRPO (arXiv 2402.03300) section 4.1.2.
    """
    return mean(rewards) / (rewards.std(ddof=1) + _EPSILON)


def mean(rewards: Float[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """Computes `r - mean` within the group.

    Division by the standard deviation would give more weight to groups whose
    completions are nearly all correct or nearly all wrong.

    Source: Dr. GRPO (arXiv 2503.20783).
    """
    return rewards - rewards.mean()


def batch_std(
    rewards: Float[np.ndarray, " G"], step_rewards: Sequence[Float[np.ndarray, " _"]]
) -> Float64[np.ndarray, " G"]:
    """Computes `(r - mean) / (std + 1e-6)` with the mean of the group.

    The standard deviation is that of `r - mean` over all completions of the step.

    Source: ScaleRL (arXiv 2510.13786).
    """
    of_all = np.concatenate([mean(of_group) for of_group in step_rewards])
    return mean(rewards) / (of_all.std() + _EPSILON)


def maxrl(correct: Bool[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """Computes `(c - mean) / mean`, where c is 1 for correct completions, else 0.

    The policy gradient then approximates the gradient of log p(correct), instead of
    p(correct). The result is 0 if no completion is correct. Rewards have no influence.

    Source: MaxRL (arXiv 2602.02710).
    """
    share = correct.mean()
    return (correct - share) / share if share else np.zeros(len(correct))


def leave_one_out(rewards: Float[np.ndarray, " G"]) -> Float64[np.ndarray, " G"]:
    """Computes `r - mean of the other rewards`, or 0 if the group has one completion.

    Source: RLOO (arXiv 2402.14740).
    """
    return mean(rewards) * (len(rewards) / max(len(rewards) - 1, 1))


ADVANTAGES: Mapping[str, Callable[..., Advantages]] = {
    f.__name__: f for f in (std, mean, batch_std, maxrl, leave_one_out)
}

_ARGUMENTS = ("rewards", "correct", "lengths", "completions", "step_rewards")


def load_advantage(function: str) -> Callable[..., Any]:
    """Returns an advantage function that may be called with all arguments.

    `function` is a name in `ADVANTAGES`, or a user's "module:function". Raises
    ValueError if the function cannot be loaded, or has an unknown argument.
    """
    named = load_named(function, ADVANTAGES, key="config.objective.advantage")
    key = f"config.objective.advantage={function!r}"
    return by_name(named, _ARGUMENTS, key=key)


def compute_advantages(groups: Sequence[Group], function: str) -> list[Advantages]:
    """Returns the advantages of each group of a step; see `load_advantage`."""
    advantage = load_advantage(function)
    key = f"config.objective.advantage={function!r}"
    step_rewards = [np.asarray(group.rewards, np.float64) for group in groups]
    found = []
    for group in groups:
        values = advantage(
            rewards=np.asarray(group.rewards, np.float64),
            correct=group.correct,
            lengths=np.array([len(c.token_ids) for c in group.completions]),
            completions=group.completions,
            step_rewards=step_rewards,
        )
        found.append(check_advantages(values, group, key=key))
    return found


def check_advantages(
    values: Sequence[Any] | np.ndarray, group: Group, *, key: str
) -> Advantages:
    """Converts the advantages of a group to float64; raises ValueError if not valid."""
    try:
        parts = [np.asarray(value, np.float64) for value in values]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: must return finite numbers ({error})") from None
    shapes = [((), (len(c.token_ids),)) for c in group.completions]
    if len(parts) != len(shapes) or not all(
        part.shape in allowed and np.isfinite(part).all()
        for part, allowed in zip(parts, shapes, strict=False)
    ):
        raise ValueError(
            f"{key}: must return a finite number, or one per token, for each of the"
            f" {len(shapes)} completions of problem {group.problem.id!r};"
            f" returned {[part.tolist() for part in parts]!r:.300}"
        )
    return np.array(parts) if all(not part.ndim for part in parts) else parts
