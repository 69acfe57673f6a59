"""The weight of each token in the loss: what "averaging" means, counted on the host.

The loss is a weighted sum over tokens, however a mini-batch is cut into micro-batches
and rows, so that neither packing nor the mesh can change the gradient.
"""

from collections.abc import Sequence
from typing import Literal, assert_never

import numpy as np
from jaxtyping import Float64

from rl.types import Batch

Aggregation = Literal["token", "group", "sequence", "constant"]


def weigh(
    mini_batch: Sequence[Batch], *, aggregation: Aggregation, constant: int
) -> list[Batch]:
    """Return a mini-batch whose `loss_weights` average over its `loss_mask`.

    * token: 1 / all tokens (DAPO, verl);
    * group: 1 / (groups * tokens of the group), the paper's formula read literally;
    * sequence: 1 / (completions * tokens of the completion) (GRPO);
    * constant: 1 / (completions * `constant`) (Dr. GRPO).

    Tokens outside of `loss_mask` count nowhere, nor do groups and completions without
    any token in it.

    Args:
      mini_batch: its micro-batches, NumPy arrays.
      aggregation: one of the above.
      constant: most tokens that a completion may have.
    """
    masks = [np.asarray(batch.loss_mask) for batch in mini_batch]
    groups = [np.asarray(batch.group_ids) for batch in mini_batch]
    completions = number_completions(mini_batch)
    in_group = _counts(groups, masks)
    in_completion = _counts(completions, masks)

    def weight(group: np.ndarray, completion: np.ndarray) -> Float64[np.ndarray, " _"]:
        if aggregation == "token":
            return np.full(len(group), 1 / max(in_group.sum(), 1))
        if aggregation == "group":
            return 1 / (np.count_nonzero(in_group) * in_group[group])
        sequences = max(int(np.count_nonzero(in_completion)), 1)
        if aggregation == "sequence":
            return 1 / (sequences * in_completion[completion])
        if aggregation == "constant":
            return np.full(len(group), 1 / (sequences * constant))
        assert_never(aggregation)

    weighed = []
    for batch, mask, group, completion in zip(
        mini_batch, masks, groups, completions, strict=True
    ):
        weights = np.zeros(mask.shape, np.float32)
        weights[mask] = weight(group[mask], completion[mask])
        weighed.append(batch.replace(loss_weights=weights))
    return weighed


def reject(
    mini_batch: Sequence[Batch],
    weights: Sequence[np.ndarray],
    *,
    aggregation: Aggregation,
    constant: int,
) -> list[Batch]:
    """Remove tokens of weight 0 before the others are averaged.

    A rejected token is in no sum, no statistic and no divisor.

    Args:
      mini_batch: its micro-batches, NumPy arrays.
      weights: `[R, T]` of each micro-batch, by `objective.correction`.
      aggregation, constant: see `weigh`.
    """
    kept = [
        batch.replace(
            loss_mask=mask,
            off_policy=batch.off_policy & mask,
            stale=batch.stale & mask,
        )
        for batch, mask in (
            (batch, batch.loss_mask & (of_batch != 0))
            for batch, of_batch in zip(mini_batch, weights, strict=True)
        )
    ]
    weighed = weigh(kept, aggregation=aggregation, constant=constant)
    return [
        batch.replace(loss_weights=batch.loss_weights * of_batch)
        for batch, of_batch in zip(weighed, weights, strict=True)
    ]


def number_completions(mini_batch: Sequence[Batch]) -> list[np.ndarray]:
    """Return for each token the number of its completion in the mini-batch."""
    numbers, first = [], 0
    for batch in mini_batch:
        ids = np.asarray(batch.segment_ids)
        width = int(ids.max(initial=0)) + 1
        numbers.append(first + np.arange(len(ids))[:, None] * width + ids)
        first += len(ids) * width
    return numbers


def _counts(
    numbers: Sequence[np.ndarray], masks: Sequence[np.ndarray]
) -> Float64[np.ndarray, " _"]:
    """Count the masked-in tokens of each number."""
    inside = [number[mask] for number, mask in zip(numbers, masks, strict=True)]
    return np.bincount(np.concatenate(inside)).astype(np.float64)
