"""Computes the weight of each token in the loss, on the host.

The weights implement `objective.aggregation`. The loss of a mini-batch is a weighted
sum over tokens, so packing, micro-batches and the mesh do not change the gradient.
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
    """Returns the mini-batch with `loss_weights` filled in.

    The weight of a token depends on the aggregation:

    * token: 1 / number of tokens (DAPO, verl)
    * group: 1 / (groups * tokens of the group), the literal formula of the
      Compass-Thinker paper
    * sequence: 1 / (completions * tokens of the completion) (GRPO)
    * constant: 1 / (completions * `constant`) (Dr. GRPO)

    Only tokens in `loss_mask` count, and only groups and completions with such tokens.

    Args:
      mini_batch: micro-batches of NumPy arrays.
      aggregation: name of an aggregation above.
      constant: divisor for "constant", the maximum length of a completion.
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
    """Removes tokens of weight 0 and computes the loss weights of the others.

    Removed tokens do not count in sums, statistics or divisors. The loss weights of the
    other tokens are multiplied by `weights`.

    Args:
      mini_batch: micro-batches of NumPy arrays.
      weights: rejection weights `[R, T]` of each micro-batch (`rl.update.rejection`).
      aggregation: aggregation as in `weigh`.
      constant: divisor as in `weigh`.
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
    """Returns for each token a number that identifies its completion.

    Numbers are unique within the mini-batch. Padding and the prompts that several
    completions share have their own numbers.
    """
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
    """Counts, for each number, the tokens inside the masks that have this number.

    Returns:
      Counts indexed by number, `[largest number + 1]`.
    """
    inside = [number[mask] for number, mask in zip(numbers, masks, strict=True)]
    return np.bincount(np.concatenate(inside)).astype(np.float64)
