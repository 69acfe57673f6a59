"""From completions to raw accuracy and shaped reward: two fields, never one."""

from collections.abc import Callable, Sequence

import numpy as np

from rl.data import load_function
from rl.types import Problem
from rl.verifier import VerifierPool

Reward = Callable[[Sequence[str], Sequence[Problem]], tuple[np.ndarray, np.ndarray]]


def verifier_reward(pool: VerifierPool) -> Reward:
    """+1 where the verifier finds the answer right, else -1."""

    def reward(texts, problems):
        items = [(t, p.answers) for t, p in zip(texts, problems, strict=True)]
        correct = np.array([v.correct for v in pool.judge(items)], bool)
        return correct, np.where(correct, 1.0, -1.0).astype(np.float32)

    return reward


def custom_reward(function: str) -> Reward:
    """A user's "module:function" from (completion, problem) to a number.

    A completion counts as right where its number is above 0.
    """
    score = load_function(function, key="reward.function")

    def reward(texts, problems):
        values = [float(score(t, p)) for t, p in zip(texts, problems, strict=True)]
        rewards = np.array(values, np.float32)
        if not np.isfinite(rewards).all():
            bad = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise ValueError(
                f"reward.function={function!r} gave {values[bad]} for problem"
                f" {problems[bad].id!r}"
            )
        return rewards > 0, rewards

    return reward


def shuffled(reward: Reward, generator: Callable[[], np.random.Generator]) -> Reward:
    """The control: verdicts are dealt out at random among the completions.

    Their number stays, their meaning goes: a gain under it is not due to the reward.
    """

    def shuffle(texts, problems):
        correct, rewards = reward(texts, problems)
        order = generator().permutation(len(rewards))
        return correct[order], rewards[order]

    return shuffle


def overlong_penalty(
    lengths: np.ndarray, *, max_tokens: int, buffer: int, factor: float
) -> np.ndarray:
    """Soft overlong punishment (DAPO, arXiv 2503.14476, eq. 13), added to the reward.

    `factor * min(0, -(L - (max_tokens - buffer)) / buffer)`, not below `-factor`.

    Args:
      lengths: L, tokens of each completion with its stop token.
      max_tokens: most that a completion may have.
      buffer: the last tokens of that, over which the penalty grows.
      factor: its size at the very end; 0 switches it off.
    """
    if not factor:
        return np.zeros(len(lengths), np.float32)
    over = (np.asarray(lengths) - (max_tokens - buffer)) / buffer
    return (-factor * np.clip(over, 0, 1)).astype(np.float32)
