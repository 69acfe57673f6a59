"""Defines the data types of the training loop.

Axes: R packed rows, T positions, G completions of a group.

Entry t of every array of a `Batch` belongs to `token_ids[t]`. The model predicts this
token from the hidden state of position t - 1. Only `rl.update.objective.token_logprobs`
shifts by one position.

Log-probabilities of tokens are at the sampling temperature:

    policy_logprobs     by the current parameters
    old_logprobs        by the policy before the updates; see `objective.old_logprobs`
    sampler_logprobs    as the sampler reported them when it sampled the token
    reference_logprobs  by the reference model, if the objective uses one
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal, Self, get_args

import flax.struct
import jax
import numpy as np
from jaxtyping import Bool, Float32, Int32

from rl.problems.types import Problem
from rollout.types import Completion

# NumPy arrays on the host, JAX arrays on the devices.
Array = jax.Array | np.ndarray
Scalar = jax.Array | np.generic

FilterOn = Literal["correct", "reward"]

__all__ = ["Batch", "Group", "Hyper", "Problem", "Segment"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Holds the G completions of one problem, which stay in one mini-batch.

    Completions that could not be judged are left out, so G may be below
    `rollout.group_size`.
    """

    problem: Problem
    prompt_ids: np.ndarray  # int32 [P], with `data.template` applied
    completions: tuple[Completion, ...]
    correct: np.ndarray  # bool [G]
    raw: np.ndarray  # float32 [G], before shaping, such as by length penalties
    rewards: np.ndarray  # float32 [G], shaped; advantages are computed from these
    # Step in which sampling began. Each later step without an update increases this
    # number by 1, since the policy stays the same.
    created_step: int
    rules: tuple[str, ...] = ()  # `Verdict.rule` of each completion, for logs
    # float32 [G] per component of the reward, for logs; NaN where it is missing.
    components: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def informative(self, on: FilterOn = "correct") -> bool:
        """Returns whether the completions differ in correctness or reward.

        With "correct", some must be correct and some wrong (DAPO, arXiv 2503.14476,
        eq. 11). With "reward", the rewards before shaping must differ; an empty group
        raises ValueError.
        """
        if on == "reward":
            return bool(np.ptp(self.raw) > 0)
        return bool(self.correct.any() and not self.correct.all())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """Holds one prompt and its completion of C tokens, to be packed into a row."""

    group: int  # index in the mini-batch; segments of a group share a prompt
    token_ids: np.ndarray  # int32, the prompt followed by the completion
    prompt_length: int
    sampler_logprobs: np.ndarray  # float32 [C]
    off_policy: np.ndarray  # bool [C], sampled by another policy version or by vLLM
    stale: np.ndarray  # bool [C], sampled by another policy version
    advantage: float | np.ndarray  # of all completion tokens, or [C]


class Batch(flax.struct.PyTreeNode):
    """Holds a micro-batch of packed rows; unused and padding entries are 0.

    Attributes:
      segment_ids: number of each token's segment, ascending within a row; 0 is padding.
      prefix_ids: number of the segment with the shared prompt of a completion; 0 if the
        prompt is not shared. That segment lacks the prompt's last token.
      loss_weights: see `rl.groups.packing`.
      off_policy, stale: see `Segment`.
    """

    token_ids: Int32[Array, "R T"]
    positions: Int32[Array, "R T"]  # from 0 at the start of each prompt
    segment_ids: Int32[Array, "R T"]
    prefix_ids: Int32[Array, "R T"]
    group_ids: Int32[Array, "R T"]  # index of the group in the mini-batch
    loss_mask: Bool[Array, "R T"]  # whether a token is of a completion and has a loss
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


def make_hyper(*, first_update: bool, **scalars: float) -> Hyper:
    """Returns host scalars of fixed dtypes; new values do not cause recompilation."""
    floats = {name: np.float32(value) for name, value in scalars.items()}
    return Hyper(first_update=np.bool_(first_update), **floats)
