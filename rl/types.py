"""The data that flows through the loop, stated once.

Axes: R packed rows, T positions, G group size.

Alignment: entry t of any array describes *producing* `token_ids[t]`. The hidden state
that produces it is that of position t - 1; the one place that shifts is
`rl.objective.token_logprobs`.

Log-probabilities carry one of three names: `policy_logprobs` (current parameters),
`old_logprobs` (the trainer's, at the start of the step) and `sampler_logprobs` (what
the sampler reported when it drew the token). All are at the sampling temperature.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import numpy as np

from rollout.types import Completion


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """The G completions of one problem: atomic, never split.

    Attributes:
      problem: what was asked.
      prompt_ids: int32 `[P]`, the rendered prompt.
      completions: the G completions.
      correct: bool `[G]`, raw accuracy by the verifier. Dynamic sampling and accuracy
        metrics read this and nothing else.
      rewards: float32 `[G]`, shaped; advantages read this and nothing else.
      born: the step whose sampling began it (surplus groups age).
    """

    problem: Problem
    prompt_ids: np.ndarray
    completions: tuple[Completion, ...]
    correct: np.ndarray
    rewards: np.ndarray
    born: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """One prompt with one completion, ready to be packed into a row.

    Attributes:
      group: index of its group in the mini-batch; those of a group share a prompt.
      token_ids: int32 `[n]`, prompt then completion.
      prompt_length: tokens of the prompt, never scored.
      sampler_logprobs: float32 `[n - prompt_length]`.
      off_policy: bool `[n - prompt_length]`, tokens whose sampler was not the policy
        that the step starts from; the objective corrects their weight.
      advantage: of every token of the completion.
      loss_weight: of every token; the mini-batch's normaliser is inside, counted on
        the host, so that neither micro-batches nor packing can change the gradient.
    """

    group: int
    token_ids: np.ndarray
    prompt_length: int
    sampler_logprobs: np.ndarray
    off_policy: np.ndarray
    advantage: float
    loss_weight: float


@flax.struct.dataclass
class Batch:
    """Packed rows on the devices, all `[R, T]`; entry t is about token t.

    Attributes:
      token_ids: int32; 0 in padding.
      positions: int32, counted from 0 at the start of each prompt.
      segment_ids: int32, ascending within a row; 0 is padding.
      prefix_ids: int32, the segment with the prompt that a completion shares with
        others of its row; 0 where the prompt is in the completion's own segment.
      scored: bool, the completions' tokens.
      advantages: float32.
      loss_weights: float32; 0 wherever `scored` is false.
      old_logprobs: float32, the trainer's at the start of the step.
      sampler_logprobs: float32.
      off_policy: bool, see `Segment`.
    """

    token_ids: jax.Array
    positions: jax.Array
    segment_ids: jax.Array
    prefix_ids: jax.Array
    scored: jax.Array
    advantages: jax.Array
    loss_weights: jax.Array
    old_logprobs: jax.Array
    sampler_logprobs: jax.Array
    off_policy: jax.Array


@flax.struct.dataclass
class Hyper:
    """What may change from update to update without compiling anything: scalars.

    Attributes:
      learning_rate: of this update.
      eps_low: the ratio is clipped below at `1 - eps_low`.
      eps_high: and above at `1 + eps_high`.
      first: bool, whether this is the first update of its step, whose old
        log-probabilities are its own.
    """

    learning_rate: jax.Array
    eps_low: jax.Array
    eps_high: jax.Array
    first: jax.Array
