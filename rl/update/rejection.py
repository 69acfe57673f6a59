"""Rejection of off-policy tokens, before the weights of the others are counted.

A rejection looks at all completions' tokens of a mini-batch at once:

    log_weights  `[n]`, old_logprobs - sampler_logprobs, held within +-20
    off_policy   bool `[n]`: another version or another program sampled the token
    completions  int `[n]`: the number of the token's completion
    cap          `objective.correction_cap`

and returns a weight for each token, `[n]`. Weight 0 removes the token: from the loss,
from every statistic and from every divisor.
"""

from collections.abc import Callable, Sequence

import numpy as np

from rl.groups.weights import number_completions
from rl.problems.functions import load_named
from rl.types import Batch
from rl.update.losses import MAX_LOG_RATIO

TRUNCATE = "truncate"
Rejection = Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray]


def mask(
    log_weights: np.ndarray, off_policy: np.ndarray, completions: np.ndarray, cap: float
) -> np.ndarray:
    """Keep an off-policy token where `1/cap <= exp(log_weight) <= cap`."""
    return ~off_policy | (np.abs(log_weights) <= np.log(cap))


def geometric(
    log_weights: np.ndarray, off_policy: np.ndarray, completions: np.ndarray, cap: float
) -> np.ndarray:
    """Keep a completion where the geometric mean of its weights lies within the cap.

    The mean is over its off-policy tokens; the completion stays or goes as a whole. The
    mean of thousands of tokens is near 1, and so are useful caps, such as 1.001.
    """
    counts = np.bincount(completions, off_policy)
    sums = np.bincount(completions, np.where(off_policy, log_weights, 0))
    kept = np.abs(sums / np.maximum(counts, 1)) <= np.log(cap)
    return kept[completions]


REJECTIONS: dict[str, Rejection] = {"mask": mask, "geometric": geometric}


def load_rejection(name: str) -> Rejection | None:
    """Return the rejection that `objective.correction` names; None for "truncate".

    Raises:
      ValueError: one line that names the key and what is wrong.
    """
    if name == TRUNCATE:
        return None
    return load_named(name, REJECTIONS, key="config.objective.correction")


def rejection_weights(
    mini_batch: Sequence[Batch], rejection: Rejection, cap: float
) -> list[np.ndarray]:
    """Return a rejection's weights of every micro-batch, `[R, T]`, 0 in padding.

    Args:
      mini_batch: NumPy arrays, with `old_logprobs`.
      rejection: see the module's docstring.
      cap: `objective.correction_cap`.

    Raises:
      ValueError: the rejection does not return a finite weight for each token.
    """
    masks = [np.asarray(b.loss_mask) for b in mini_batch]

    def flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([a[m] for a, m in zip(arrays, masks, strict=True)])

    gaps = flat([np.asarray(b.old_logprobs - b.sampler_logprobs) for b in mini_batch])
    weights = np.asarray(
        rejection(
            np.clip(gaps, -MAX_LOG_RATIO, MAX_LOG_RATIO),
            flat([np.asarray(b.off_policy) for b in mini_batch]),
            flat(number_completions(mini_batch)),
            cap,
        ),
        np.float32,
    )
    if weights.shape != gaps.shape:
        raise ValueError(
            f"config.objective.correction: returned the shape {weights.shape}, not"
            f" {gaps.shape}, a weight for each token"
        )
    if wrong := int((~np.isfinite(weights)).sum()):
        raise ValueError(
            f"config.objective.correction: {wrong} of {len(gaps)} weights are not"
            " finite"
        )
    of_batches, start = [], 0
    for inside in masks:
        of_batch = np.zeros(inside.shape, np.float32)
        stop = start + int(inside.sum())
        of_batch[inside], start = weights[start:stop], stop
        of_batches.append(of_batch)
    return of_batches
