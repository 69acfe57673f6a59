"""Defines the data types of the training loop.

Axes: R packed rows, T positions, G group size.

Alignment: entry t of every array of a `Batch` belongs to `token_ids[t]`. The model
predicts that token from the hidden state of position t - 1. Only
`rl.update.objective.token_logprobs` shifts by one.

Log-probabilities of tokens have four names. All are at the sampling temperature.

    policy_logprobs     by the current parameters
    old_logprobs        by the parameters at the start of the step, if needed
    sampler_logprobs    as the sampler reported them when it sampled the token
    reference_logprobs  by the reference model, if the objective uses one
"""

import dataclasses
from collections.abc import Mapping
from typing import Self, get_args

import flax.struct
import jax
import numpy as np
from jaxtyping import Bool, Float32, Int32

from rl.problems.types import Problem
from rollout.types import Completion

# NumPy arrays on the host, JAX arrays on the devices.
Array = jax.Array | np.ndarray
Scalar = jax.Array | np.generic

__all__ = ["Batch", "Group", "Hyper", "Problem", "Segment"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Holds the G completions of one problem, which stay in one mini-batch.

    Completions that could not be judged are left out, so G may be below the group size.

    Attributes:
      prompt_ids: int32 `[P]`, token ids of the prompt, with `data.template` applied.
      correct: bool `[G]`, whether each completion is correct. Accuracy metrics use only
        this, and so does dynamic sampling unless it filters on rewards.
      raw: float32 `[G]`, the rewards before shaping, such as by length penalties.
      rewards: float32 `[G]`, the shaped rewards, from which advantages are computed.
      created_step: the step in which sampling of the group began. Each later step
        without an update increases it by 1, since the policy stays the same.
      rules: the rule of each verdict (`Verdict.rule`), for logs; may be empty.
      components: float32 `[G]` for each component of the reward, by name, for logs; NaN
        for a completion without that component.
    """

    problem: Problem
    prompt_ids: np.ndarray
    completions: tuple[Completion, ...]
    correct: np.ndarray
    raw: np.ndarray
    rewards: np.ndarray
    created_step: int
    rules: tuple[str, ...] = ()
    components: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """Holds one prompt and its completion of C tokens, ready to be packed into a row.

    Attributes:
      off_policy: bool `[C]`, true for tokens sampled by another policy version or by a
        program other than the trainer (vLLM).
      stale: bool `[C]`, true for tokens sampled by another policy version.
      advantage: one advantage for all completion tokens, or `[C]`.
    """

    group: int  # index in the mini-batch; segments of a group share a prompt
    token_ids: np.ndarray  # int32, the prompt followed by the completion
    prompt_length: int
    sampler_logprobs: np.ndarray  # float32 [C]
    off_policy: np.ndarray
    stale: np.ndarray
    advantage: float | np.ndarray


class Batch(flax.struct.PyTreeNode):
    """Holds a micro-batch of packed rows; entry t of a row belongs to its token t.

    Attributes:
      token_ids: 0 in padding.
      positions: counted from 0 at the start of each prompt.
      segment_ids: number of each token's segment, ascending within a row; 0 is padding.
      prefix_ids: for completions that share their prompt in the row, number of the
        segment with this prompt (without its last token); otherwise 0.
      group_ids: index in the mini-batch of each completion token's group; 0 elsewhere.
      loss_mask: whether a token belongs to a completion and has a loss.
      advantages: advantage of each completion token; 0 elsewhere.
      loss_weights: weight of each token's loss, 0 where `loss_mask` is false; see
        `rl.groups.packing`.
      old_logprobs: see the module's docstring; 0 if not used.
      sampler_logprobs: see `rollout.types.Completion`.
      reference_logprobs: log-probabilities by the reference model; 0 if not used.
      off_policy, stale: see `Segment`.
    """

    token_ids: Int32[Array, "R T"]
    positions: Int32[Array, "R T"]
    segment_ids: Int32[Array, "R T"]
    prefix_ids: Int32[Array, "R T"]
    group_ids: Int32[Array, "R T"]
    loss_mask: Bool[Array, "R T"]
    advantages: Float32[Array, "R T"]
    loss_weights: Float32[Array, "R T"]
    old_logprobs: Float32[Array, "R T"]
    sampler_logprobs: Float32[Array, "R T"]
    reference_logprobs: Float32[Array, "R T"]
    off_policy: Bool[Array, "R T"]
    stale: Bool[Array, "R T"]

    @classmethod
    def padding(cls, rows: int, length: int) -> Self:
        """Returns rows of padding: NumPy arrays `[rows, length]` of zeros."""
        fields = dataclasses.fields(cls)
        # A jaxtyping annotation of a union holds the dtype in its first member.
        dtypes = [get_args(f.type)[0].dtypes[0] for f in fields]
        return cls(*(np.zeros((rows, length), dtype) for dtype in dtypes))


class Hyper(flax.struct.PyTreeNode):
    """Holds the scalars that may change between updates without recompilation."""

    learning_rate: Scalar
    eps_low: Scalar  # most losses clip probability ratios at 1 - eps_low
    eps_high: Scalar  # and at 1 + eps_high
    temperature: Scalar  # log-probabilities are computed at this temperature
    first_update: Scalar  # whether the old policy of this update is the current one


def make_hyper(
    *,
    learning_rate: float,
    eps_low: float,
    eps_high: float,
    temperature: float,
    first_update: bool,
) -> Hyper:
    """Returns host scalars of fixed dtypes; new values do not cause recompilation."""
    return Hyper(
        learning_rate=np.float32(learning_rate),
        eps_low=np.float32(eps_low),
        eps_high=np.float32(eps_high),
        temperature=np.float32(temperature),
        first_update=np.bool_(first_update),
    )
