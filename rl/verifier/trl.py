"""A reward function with TRL's calling convention."""

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
      completions: texts, or conversations whose last message is judged.
      answer: the column of golds; a sequence of golds where any of them counts.
      problem: the column of problem texts, if there is one: then a formula copied from
        the problem does not count.
      columns: everything else that TRL passes; ignored.

    Returns:
      For each completion 1.0, -1.0, or None where the gold cannot be read: TRL leaves
      such a reward out.
    """
    problems = problem if problem is not None else [None] * len(completions)
    rewards: list[float | None] = []
    for completion, gold, text in zip(completions, answer, problems, strict=True):
        reply = completion if isinstance(completion, str) else completion[-1]["content"]
        correct = judge(reply, gold, text).correct
        rewards.append(None if correct is None else 1.0 if correct else -1.0)
    return rewards
