"""The data that flows through the loop, stated once. Imports nothing of ours.

Axes: B batch, R packed rows, T positions, M scored tokens of a row, G group size.

Alignment: entry t of a completion's arrays describes *producing* `token_ids[t]`. In a
packed row the token at position t is produced by the hidden state at position t - 1
(`Batch.hidden_index` says which), so nothing is ever shifted twice.

Log-probabilities carry one of three names: `policy_logprobs` (current parameters),
`old_logprobs` (the trainer's, at the start of the step) and `sampler_logprobs` (what
the sampler reported when it drew the token). All are at the sampling temperature.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with a verifiable answer.

    Attributes:
      id: unique within its data set.
      problem: the question as text.
      answers: accepted gold answers; any match counts.
      source: where it comes from.
      level: difficulty 1 (easy) to 5, or None.
      meta: whatever else its row holds (units, tolerance, subject ...).
    """

    id: str
    problem: str
    answers: tuple[str, ...]
    source: str = ""
    level: int | None = None
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
