"""Defines rejection functions, which remove tokens that are too far off-policy.

A rejection function receives all completion tokens of a mini-batch:

    log_weights  `[n]`, old_logprobs - sampler_logprobs, clipped to [-20, 20]
    off_policy   bool `[n]`, true if the token was sampled by another policy version or
                 by a sampler other than the trainer
    completions  int `[n]`, id of the token's completion
    cap          `objective.correction_cap`

The function returns a weight for each token, `[n]`. A token of weight 0 is removed from
the loss, from its statistics and from the token counts by which the loss is averaged.
Any other weight multiplies the token's loss.
"""

from collections.abc import Callable, Sequence

import numpy as np

from rl.errors import user_code
from rl.groups.packing import Aggregation, number_completions, weigh
from rl.problems.functions import load_named
from rl.types import Batch
from rl.update.losses import MAX_LOG_RATIO

TRUNCATE = "truncate"
Rejection = Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray]


def mask(
    log_weights: np.ndarray, off_policy: np.ndarray, completions: np.ndarray, cap: float
) -> np.ndarray:
    """Removes off-policy tokens with `exp(log_weight)` outside [1/cap, cap]."""
    return ~off_policy | (np.abs(log_weights) <= np.log(cap))


def geometric(
    log_weights: np.ndarray, off_policy: np.ndarray, completions: np.ndarray, cap: float
) -> np.ndarray:
    """Removes completions whose mean importance weight is not in [1/cap, cap].

    The mean is the geometric mean over the off-policy tokens of the completion. With
    thousands of tokens it is close to 1, and so is a useful cap, such as 1.001.
    """
    counts = np.bincount(completions, off_policy)
    sums = np.bincount(completions, np.where(off_policy, log_weights, 0))
    kept = np.abs(sums / np.maximum(counts, 1)) <= np.log(cap)
    return kept[completions]


REJECTIONS: dict[str, Rejection] = {"mask": mask, "geometric": geometric}


def load_rejection(name: str) -> Rejection | None:
    """Loads the function that `objective.correction` names; None for "truncate"."""
    if name == TRUNCATE:
        return None
    return load_named(name, REJECTIONS, key="config.objective.correction")


def rejection_weights(
    mini_batch: Sequence[Batch], rejection: Rejection, cap: float
) -> list[np.ndarray]:
    """Computes the rejection weights of each micro-batch, `[R, T]`; 0 outside the mask.

    The micro-batches hold NumPy arrays, with `old_logprobs` filled in. Raises
    ValueError if the function does not return a finite weight per token.
    """
    mask = np.stack([b.loss_mask for b in mini_batch])
    gaps = np.stack([b.old_logprobs - b.sampler_logprobs for b in mini_batch])[mask]
    given = (
        np.clip(gaps, -MAX_LOG_RATIO, MAX_LOG_RATIO),
        np.stack([b.off_policy for b in mini_batch])[mask],
        number_completions(mini_batch)[mask],
    )
    with user_code("config.objective.correction"):
        weights = np.asarray(rejection(*given, cap), np.float32)
    finite = int(np.isfinite(weights).sum())
    if weights.shape != gaps.shape or finite != weights.size:
        raise ValueError(
            f"config.objective.correction: the function returned shape {weights.shape}"
            f" (finite: {finite}); it must return one finite weight for each token, of"
            f" shape {gaps.shape}"
        )
    of_tokens = np.zeros(mask.shape, np.float32)
    of_tokens[mask] = weights
    return list(of_tokens)


def reject(
    mini_batch: Sequence[Batch],
    weights: Sequence[np.ndarray],
    *,
    aggregation: Aggregation,
    constant: int,
) -> list[Batch]:
    """Returns the micro-batches with tokens of weight 0 removed from the loss mask.

    `weights` is the result of `rejection_weights`. The loss weights of the other tokens
    are computed without the removed tokens, then multiplied by `weights`.
    """
    kept = []
    for batch, of_batch in zip(mini_batch, weights, strict=True):
        inside = batch.loss_mask & (of_batch != 0)
        kept.append(
            batch.replace(
                loss_mask=inside,
                off_policy=batch.off_policy & inside,
                stale=batch.stale & inside,
            )
        )
    weighed = weigh(kept, aggregation=aggregation, constant=constant)
    return [
        batch.replace(loss_weights=batch.loss_weights * of_batch)
        for batch, of_batch in zip(weighed, weights, strict=True)
    ]
