"""Select completions token by token, with log-probabilities of each token."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rl.types import Batch, Group, Hyper

_COMPLETIONS = 2  # of a step


def token_rows(
    groups: Sequence[Group],
    batch: Batch,
    before: np.ndarray,
    after: np.ndarray,
    hyper: Hyper,
    decode: Callable[[Sequence[int]], str],
) -> list[dict[str, Any]]:
    """Return the first completions of a step's first micro-batch, for tokens.jsonl.

    Args:
      groups: of the step, in the order in which they were packed.
      batch: the step's first micro-batch.
      before, after: float32 `[R, T]`, the trainer's log-probabilities at the start of
        the step, and after its last update.
      hyper: of the last update; its clipping.
      decode: token ids to text.

    Returns:
      For each completion its problem, advantage and clipping, and a list for each of
      `ids`, `texts`, `sampler` and `trainer` (log-probabilities when the token was
      drawn, and at the start of the step), `after`, and `versions`.
    """
    rows: list[dict[str, Any]] = []
    for where in _completions(batch):
        ids, number = batch.token_ids[where], int(batch.group_ids[where][0])
        if len(rows) == _COMPLETIONS:
            break
        if number >= len(groups):  # of `rollout.extra_groups`
            continue
        group = groups[number]
        own = [c for c in group.completions if np.array_equal(c.token_ids, ids)]
        if not own:
            continue
        rows.append(
            {
                "id": group.problem.id,
                "problem": group.problem.problem,
                "advantage": float(batch.advantages[where][0]),
                "eps_low": float(hyper.eps_low),
                "eps_high": float(hyper.eps_high),
                "ids": ids.tolist(),
                "texts": [decode([token]) for token in ids.tolist()],
                "sampler": _short(np.asarray(batch.sampler_logprobs)[where]),
                "trainer": _short(before[where]),
                "after": _short(after[where]),
                "versions": own[0].versions.tolist(),
            }
        )
    return rows


def _completions(batch: Batch) -> Iterator[tuple[int, np.ndarray]]:
    """Yield row and columns of each completion, in order."""
    for row, (segments, mask) in enumerate(
        zip(batch.segment_ids, batch.loss_mask, strict=True)
    ):
        for segment in np.unique(segments[mask]):
            yield row, np.flatnonzero(mask & (segments == segment))


def _short(values: np.ndarray) -> list[float]:
    """Round to five digits."""
    return [float(f"{value:.5g}") for value in values]
