"""The data that flows through the loop, stated once.

Axes: R packed rows, T positions, G group size.

Alignment: entry t of any array describes *producing* `token_ids[t]`. The hidden state
that produces it is that of position t - 1; the one place that shifts is
`rl.update.objective.token_logprobs`.

Log-probabilities carry one of these names: `policy_logprobs` (current parameters),
`old_logprobs` (the trainer's, at the start of the step) and `sampler_logprobs` (what
the sampler reported when it drew the token); an objective may ask for a fourth, the
base model's `reference_logprobs`. All are at the sampling temperature.
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

# Rows are NumPy arrays on the host, and JAX arrays once placed on the devices.
Array = jax.Array | np.ndarray
Scalar = jax.Array | np.generic

__all__ = ["Batch", "Group", "Hyper", "Problem", "Segment"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """The G completions of one problem: atomic, never split.

    Fewer than G where some could not be judged: those are left out.

    Attributes:
      problem: what was asked.
      prompt_ids: int32 `[P]`, the rendered prompt.
      completions: the G completions.
      correct: bool `[G]`, raw accuracy. Accuracy metrics, and dynamic sampling unless
        it is told to filter on rewards, read this and nothing else.
      raw: float32 `[G]`, the rewards as judged.
      rewards: float32 `[G]`, shaped; advantages read this and nothing else.
      created_step: the step whose sampling began it (surplus groups age).
      rules: what decided on each, for a reader; empty where nobody kept it.
      components: float32 `[G]` each, of the reward, for a reader; NaN where there is
        none.
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
    """One prompt with one completion, ready to be packed into a row.

    Attributes:
      group: index of its group in the mini-batch; those of a group share a prompt.
      token_ids: int32 `[n]`, prompt then completion.
      prompt_length: tokens of the prompt, never scored.
      sampler_logprobs: float32 `[n - prompt_length]`.
      off_policy: bool `[n - prompt_length]`, tokens whose sampler was not the policy
        that the step starts from; the objective corrects their weight.
      stale: bool `[n - prompt_length]`, tokens that another version drew.
      advantage: of every token of the completion, `[]` or `[n - prompt_length]`.
    """

    group: int
    token_ids: np.ndarray
    prompt_length: int
    sampler_logprobs: np.ndarray
    off_policy: np.ndarray
    stale: np.ndarray
    advantage: float | np.ndarray


class Batch(flax.struct.PyTreeNode):
    """Packed rows, on the devices once placed; entry t is about token t.

    Attributes:
      token_ids: 0 in padding.
      positions: counted from 0 at the start of each prompt.
      segment_ids: ascending within a row; 0 is padding.
      prefix_ids: the segment with the prompt that a completion shares with
        others of its row; 0 where the prompt is in the completion's own segment.
      group_ids: of the completions' tokens, their group's number in the mini-batch.
      loss_mask: the completions' tokens.
      advantages: of their completions.
      loss_weights: 0 wherever `loss_mask` is false; see `rl.groups.weights`.
      old_logprobs: the trainer's at the start of the step.
      sampler_logprobs: see `rollout.types.Completion`.
      reference_logprobs: the base model's, where the objective asks for them, else 0.
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
        """Rows in which nothing is yet, in the host's memory: all zero."""
        fields = dataclasses.fields(cls)
        # Each annotation is jaxtyping's, for a JAX or a NumPy array of one dtype.
        dtypes = [get_args(f.type)[0].dtypes[0] for f in fields]
        return cls(*(np.zeros((rows, length), dtype) for dtype in dtypes))


class Hyper(flax.struct.PyTreeNode):
    """What may change from update to update without compiling anything: scalars.

    Attributes:
      learning_rate: of this update.
      eps_low: the ratio is clipped below at `1 - eps_low`.
      eps_high: and above at `1 + eps_high`.
      temperature: that its completions were drawn at; log-probabilities are those
        at this temperature.
      first_update: bool, whether this is the first of its step, whose old
        log-probabilities are its own.
    """

    learning_rate: Scalar
    eps_low: Scalar
    eps_high: Scalar
    temperature: Scalar
    first_update: Scalar


def make_hyper(
    *,
    learning_rate: float,
    eps_low: float,
    eps_high: float,
    temperature: float,
    first_update: bool,
) -> Hyper:
    """Return host scalars of fixed dtypes, so that no value compiles a new program."""
    return Hyper(
        learning_rate=np.float32(learning_rate),
        eps_low=np.float32(eps_low),
        eps_high=np.float32(eps_high),
        temperature=np.float32(temperature),
        first_update=np.bool_(first_update),
    )
