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
      answer: gold of each completion, or a sequence of accepted golds.
      problem: problem text of each completion. If given, a formula copied from the
        problem is wrong.
      columns: other columns passed by TRL, which are ignored.

    Returns:
      1.0 or -1.0 for each completion, or None if its gold cannot be read. TRL skips
      rewards that are None.
    """
    problems = problem if problem is not None else [None] * len(completions)
    rewards: list[float | None] = []
    for completion, gold, text in zip(completions, answer, problems, strict=True):
        reply = completion if isinstance(completion, str) else completion[-1]["content"]
        correct = judge(reply, gold, text).correct
        rewards.append(None if correct is None else 1.0 if correct else -1.0)
    return rewards
