"""Adds groups that the run did not sample, such as demonstrations or replays.

`rollout.extra_groups` names a function that returns (group, advantages) pairs for a
step. The function receives the arguments that its signature names:

    groups    sampled groups of the step, without those that were filtered out
    step      policy version, which is the number of steps done
    problems  training problems of the run
    encode    function from a problem to the token ids of its prompt
    tokenize  function from a text to token ids, with a stop token at the end

The result must depend on these arguments alone, so that interrupted runs resume bit for
bit. The added tokens count as off-policy. `objective.correction` weights or rejects
them by the `sampler_logprobs` of their completions.
"""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from rl.errors import user_code
from rl.groups.advantages import check_advantages
from rl.groups.packing import ExtraGroups
from rl.problems.functions import by_name, load_function
from rl.types import Group, Problem
from rollout.types import Completion

_ELSEWHERE = -1  # differs from every policy version
_NAMES = ("groups", "step", "problems", "encode", "tokenize")


def load_extra_groups(function: str, **given: Any) -> ExtraGroups | None:
    """Loads the function that adds groups to a step; returns None for "".

    `given` holds the values of `problems`, `encode` and `tokenize`. Raises ValueError
    if the function cannot be imported, or has an unknown argument.
    """
    if not function:
        return None
    own = load_function(function, key="config.rollout.extra_groups")
    key = f"config.rollout.extra_groups={function!r}"
    make = by_name(own, _NAMES, key=key)

    def extra_groups(groups, step):
        extra, returned = [], make(**given, groups=groups, step=step)
        if inspect.isgenerator(returned):
            with user_code(key):
                returned = list(returned)
        try:
            pairs = [(group, group.completions, each) for group, each in returned]
        except (AttributeError, TypeError, ValueError):
            wrong = f"must return a list of (Group, advantages), not {returned!r:.80}"
            raise ValueError(f"{key}: {wrong}") from None
        for group, sampled, values in pairs:
            completions = tuple(
                dataclasses.replace(c, versions=np.full_like(c.versions, _ELSEWHERE))
                for c in sampled
            )
            marked = dataclasses.replace(group, completions=completions)
            extra.append((marked, check_advantages(values, group, key=key)))
        return extra

    return extra_groups


def demonstration(
    problem: Problem, prompt_ids: np.ndarray, token_ids: Sequence[int]
) -> Group:
    """Builds a group from one demonstration, which counts as correct.

    `token_ids` are the tokens of the demonstration, with a stop token at the end. The
    `sampler_logprobs` are 0, so the correction "truncate" weights each token by its
    probability under the policy at the start of the step (LUFFY, arXiv 2504.14945).
    """
    completion = Completion(
        token_ids=np.asarray(token_ids, np.int32),
        sampler_logprobs=np.zeros(len(token_ids), np.float32),
        finish_reason="stop",
        versions=np.full(len(token_ids), _ELSEWHERE, np.int32),
    )
    one = np.ones(1, np.float32)
    return Group(
        problem=problem,
        prompt_ids=np.asarray(prompt_ids, np.int32),
        completions=(completion,),
        correct=one > 0,
        raw=one,
        rewards=one,
        created_step=_ELSEWHERE,
    )
