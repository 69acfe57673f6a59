"""Groups from elsewhere, such as demonstrations or replayed completions.

A function that `rollout.extra_groups` names returns (group, advantages) pairs for a
step. It takes what it names in its signature:

    groups    those of the step, sampled and filtered
    step      the policy version, the number of steps done
    problems  all problems of the run
    encode    a problem to its prompt's token ids
    tokenize  a text to token ids, the end-of-sequence token included

Its result depends on these alone, so that an interrupted run resumes bit for bit. Its
tokens count as off-policy: `objective.correction` weighs or rejects them by the
`sampler_logprobs` of their completions.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rl.groups.advantages import Advantages, check_advantages
from rl.problems.functions import argument_names, load_function
from rl.types import Group, Problem
from rollout.types import Completion

ExtraGroups = Callable[[Sequence[Group], int], list[tuple[Group, Advantages]]]
_ELSEWHERE = -1  # a version that no step has
_NAMES = ("groups", "step", "problems", "encode", "tokenize")


def load_extra_groups(function: str, **given: Any) -> ExtraGroups | None:
    """Return the function that adds groups to a step; None for "".

    Args:
      function: a user's "module:function", or "".
      **given: problems, encode and tokenize.

    Raises:
      ValueError: one line that names the key and what is wrong.
    """
    if not function:
        return None
    make = load_function(function, key="config.rollout.extra_groups")
    key = f"config.rollout.extra_groups={function!r}"
    named = argument_names(make, _NAMES, key=key)

    def extra_groups(groups, step):
        every = given | {"groups": groups, "step": step}
        return [
            (_marked(g), check_advantages(values, g, key=key))
            for g, values in make(**{name: every[name] for name in named})
        ]

    return extra_groups


def demonstration(
    problem: Problem, prompt_ids: np.ndarray, token_ids: Sequence[int]
) -> Group:
    """Return a group of one right completion that no model sampled.

    Its `sampler_logprobs` are 0, so that "truncate" weighs each token by its
    probability under the policy (LUFFY, arXiv 2504.14945).
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


def _marked(group: Group) -> Group:
    """Return the group with no token of a version of this run."""
    completions = tuple(
        dataclasses.replace(c, versions=np.full_like(c.versions, _ELSEWHERE))
        for c in group.completions
    )
    return dataclasses.replace(group, completions=completions)
