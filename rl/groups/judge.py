"""Judges completions and builds groups; decides which groups are informative."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from configs import base
from rl.reward.verifier import Reward
from rl.types import Group, Problem
from rollout.seeds import generator
from rollout.types import Completion

FilterOn = Literal["correct", "reward"]


def build_groups(
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[Completion]],
    created_step: Sequence[int],
    *,
    max_tokens: int,
    seed: int,
    reward: Reward,
    decode: Callable[[Sequence[int]], str],
    settings: base.Reward,
) -> list[Group]:
    """Returns one group per problem, without the completions that have no verdict.

    The first four arguments have one entry per group. If `settings.shuffle` is set,
    scores are shuffled over all completions, with `seed`.
    """
    texts = [
        [decode(c.token_ids.tolist()) for c in of_group] for of_group in completions
    ]
    scores = [s for of_group in reward(texts, problems) for s in of_group]
    if settings.shuffle:
        # A control experiment: if such a run still improves the policy, the
        # information in the reward is not the cause.
        scores = [scores[i] for i in generator(seed).permutation(len(scores))]
    correct = np.array([s.verdict.correct is True for s in scores], bool)
    raw = np.array([s.reward for s in scores], np.float32)
    names = dict.fromkeys(name for score in scores for name in score.components)
    components = {
        name: np.array([s.components.get(name, np.nan) for s in scores], np.float32)
        for name in names
    }
    every = [c for of_group in completions for c in of_group]
    rewards = raw + overlong_penalty(
        np.array([len(c.token_ids) for c in every]),
        max_tokens=max_tokens,
        buffer=settings.overlong_buffer,
        factor=settings.overlong_factor,
    )
    groups, end = [], 0
    for problem, prompt, of_group, began in zip(
        problems, prompts, completions, created_step, strict=True
    ):
        start, end = end, end + len(of_group)
        judged = (start + np.flatnonzero(~np.isnan(rewards[start:end]))).tolist()
        groups.append(
            Group(
                problem=problem,
                prompt_ids=np.asarray(prompt, np.int32),
                completions=tuple(every[j] for j in judged),
                correct=correct[judged],
                raw=raw[judged],
                rewards=rewards[judged],
                components={name: part[judged] for name, part in components.items()},
                rules=tuple(scores[j].verdict.rule for j in judged),
                created_step=began,
            )
        )
    return groups


def informative(group: Group, *, on: FilterOn = "correct") -> bool:
    """Returns whether the completions of a group differ in correctness or reward.

    With "correct", some must be correct and some wrong (DAPO, arXiv 2503.14476,
    eq. 11). With "reward", the rewards before shaping must differ; an empty group
    raises ValueError.
    """
    if on == "reward":
        return bool(np.ptp(group.raw) > 0)
    return bool(group.correct.any() and not group.correct.all())


def overlong_penalty(
    lengths: np.ndarray, *, max_tokens: int, buffer: int, factor: float
) -> np.ndarray:
    """Computes the soft overlong punishment (DAPO, arXiv 2503.14476, eq. 13).

    For L tokens, including the stop token, the result is
    `factor * min(0, -(L - (max_tokens - buffer)) / buffer)`, but at least `-factor`.
    """
    if not factor:
        return np.zeros(len(lengths), np.float32)
    over = (np.asarray(lengths) - (max_tokens - buffer)) / buffer
    return (-factor * np.clip(over, 0, 1)).astype(np.float32)
