"""Provides a reward function with TRL's calling convention."""

from collections.abc import Sequence
from typing import Any

from .grade.contract import judge


def reward(
    completions: Sequence[Any],
    answer: Sequence[str | Sequence[str]],
    problem: Sequence[str | None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Scores completions for `trl.GRPOTrainer(reward_funcs=reward)`.

    Args:
      completions: completion texts, or conversations whose last message is judged.
      answer: for each completion, its gold or a sequence of accepted golds.
      problem: problem text of each completion. If given, more is checked; see `judge`.

    Returns:
      1.0 for each correct completion and -1.0 for each wrong one. None if there is no
      verdict because no gold can be read; TRL skips rewards that are None.
    """
    problems = problem if problem is not None else [None] * len(completions)
    rewards: list[float | None] = []
    for completion, gold, text in zip(completions, answer, problems, strict=True):
        reply = completion if isinstance(completion, str) else completion[-1]["content"]
        correct = judge(reply, gold, text).correct
        rewards.append(None if correct is None else 1.0 if correct else -1.0)
    return rewards
