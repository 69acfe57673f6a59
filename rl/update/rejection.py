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

import functools
from collections.abc import Callable, Sequence

import numpy as np

from configs.base import RunConfig
from rl.errors import user_code
from rl.groups.packing import number_completions, weigh
from rl.problems.functions import load_named
from rl.types import Batch
from rl.update.losses import MAX_LOG_RATIO
from rl.update.objective import TRUNCATE

Reject = Callable[[Sequence[Batch]], list[Batch]]
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


def make_rejection(c: RunConfig) -> Reject | None:
    """Returns the function that removes tokens from a mini-batch; None for "truncate".

    Raises ValueError if the function that `objective.correction` names is not found.
    """
    if c.objective.correction == TRUNCATE:
        return None
    key = "config.objective.correction"
    rejection = load_named(c.objective.correction, REJECTIONS, key=key)
    return functools.partial(reject, rejection=rejection, c=c)


def reject(
    mini_batch: Sequence[Batch], *, rejection: Rejection, c: RunConfig
) -> list[Batch]:
    """Returns the micro-batches with tokens of weight 0 removed from the loss mask.

    The loss weights of the other tokens are computed without the removed tokens, then
    multiplied by the weights from `rejection`. The micro-batches hold NumPy arrays,
    with `old_logprobs` filled in. Raises ValueError if `rejection` does not return a
    finite weight per token.
    """
    mask = np.stack([b.loss_mask for b in mini_batch])
    gaps = np.stack([b.old_logprobs - b.sampler_logprobs for b in mini_batch])[mask]
    given = (
        np.clip(gaps, -MAX_LOG_RATIO, MAX_LOG_RATIO),
        np.stack([b.off_policy for b in mini_batch])[mask],
        number_completions(mini_batch)[mask],
    )
    with user_code("config.objective.correction"):
        of_tokens = rejection(*given, c.objective.correction_cap)
        of_tokens = np.asarray(of_tokens, np.float32)
    finite = int(np.isfinite(of_tokens).sum())
    if of_tokens.shape != gaps.shape or finite != of_tokens.size:
        raise ValueError(
            f"config.objective.correction: the function returned shape"
            f" {of_tokens.shape} (finite: {finite}); it must return one finite weight"
            f" for each token, of shape {gaps.shape}"
        )
    weights = np.zeros(mask.shape, np.float32)  # 0 outside the loss mask as well
    weights[mask] = of_tokens
    kept = [
        batch.replace(
            loss_mask=inside,
            off_policy=batch.off_policy & inside,
            stale=batch.stale & inside,
        )
        for batch, inside in zip(mini_batch, weights != 0, strict=True)
    ]
    weighed = weigh(kept, c.objective.aggregation, c.rollout.max_response_tokens)
    return [
        batch.replace(loss_weights=batch.loss_weights * of_batch)
        for batch, of_batch in zip(weighed, weights, strict=True)
    ]
