"""Changes of rewards: the control experiment, and the penalty of length."""

import numpy as np

from rollout.seeds import generator


def shuffled(
    correct: np.ndarray, rewards: np.ndarray, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Permute verdicts at random among the completions, as a control experiment.

    A gain under it is not due to what the reward says.
    """
    order = generator(seed).permutation(len(rewards))
    return correct[order], rewards[order]


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
