"""What every sampler takes and gives. Imports nothing of ours."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np

FinishReason = Literal["stop", "length", "unfinished"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one call of `Sampler.sample` draws tokens. Every field is always explicit.

    Attributes:
      n: completions per prompt.
      max_tokens: most tokens in one completion, its stop token included.
      temperature: 0 is greedy; log-probabilities are those at this temperature.
      top_p: nucleus mass in (0, 1]; 1 is exact sampling, without any filter.
      stop_token_ids: ids that end a completion; the drawn one is its last token.
      ignore_stop: draw `max_tokens` tokens whatever they are (benchmarks).
    """

    n: int = 1
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...]
    ignore_stop: bool = False

    def __post_init__(self):
        if self.n < 1:
            raise ValueError(f"n={self.n}: at least one completion per prompt")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens}: must be at least 1")
        if not self.temperature >= 0:
            raise ValueError(f"temperature={self.temperature}: must be 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: must lie in (0, 1]")
        if not self.stop_token_ids and not self.ignore_stop:
            raise ValueError("stop_token_ids is empty and ignore_stop is off")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """The tokens drawn for one prompt, never decoded and encoded again.

    Entry t of each array describes *producing* `token_ids[t]`.

    Attributes:
      token_ids: int32 `[n]`, the stop token included where one was drawn.
      sampler_logprobs: float32 `[n]`, natural log, at the sampling distribution.
      finish_reason: "stop" when a stop token was drawn, "length" when the budget ran
        out first. Truncated means "length" and nothing else. "unfinished" where the
        call was over before; such a one is no answer yet.
      versions: int32 `[n]`, the policy version (steps done) that drew each token.
    """

    token_ids: np.ndarray
    sampler_logprobs: np.ndarray
    finish_reason: FinishReason
    versions: np.ndarray

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def unfinished(self) -> bool:
        return self.finish_reason == "unfinished"

    def followed_by(self, rest: "Completion") -> "Completion":
        """This one, unfinished, with what was drawn after it."""
        if not len(self.token_ids):
            return rest
        return Completion(
            np.concatenate([self.token_ids, rest.token_ids]),
            np.concatenate([self.sampler_logprobs, rest.sampler_logprobs]),
            rest.finish_reason,
            np.concatenate([self.versions, rest.versions]),
        )


# Of which no token is drawn.
NOT_BEGUN = Completion(
    np.zeros(0, np.int32), np.zeros(0, np.float32), "unfinished", np.zeros(0, np.int32)
)
OnFinished = Callable[[int, int, Completion], None]
OnPause = Callable[[], bool | None]
SoFar = Sequence[Sequence[Completion]]


class SamplerError(RuntimeError):
    """Sampling cannot go on; the message says why in a line that a user can act on."""


class Sampler(Protocol):
    """A source of completions."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        begun: SoFar | None = None,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        """Draws `params.n` completions for each prompt of token ids.

        The same prompts, params, seed, weights and what is begun give the same
        completions, whatever the order in which they finish; as long as the call is
        not ended early.

        Args:
          prompts: token ids per prompt, none empty.
          params: how tokens are drawn.
          seed: non-negative; callers take a fresh one per call (see `rollout.seeds`).
          begun: for each prompt its completions so far, as an earlier call returned
            them, of whatever versions: the unfinished ones are gone on with, under the
            weights that are served now, and prompts are begun in their order. Without,
            none is begun.
          on_finished: called as `(prompt index, sample index, completion)` when a
            completion ends, in any order, on the calling thread.
          on_pause: called now and then, whether or not one has ended, on that thread;
            what it raises ends the call. Where it returns True, the call returns soon,
            what has not ended unfinished.

        Returns:
          For each prompt, its `params.n` completions.
        """
        ...

    def close(self) -> None:
        """Frees devices, processes and files. Safe to call twice."""
        ...


class PolicySampler(Sampler, Protocol):
    """A sampler that is held in step with a policy in training."""

    def publish(self, params, version: int) -> None:
        """Serves `params` (the model's parameter tree) as `version` from here on."""
        ...

    def make_room(self) -> None:
        """Frees what it holds of the trainer's devices, until the next publish."""
        ...

    def metrics(self) -> dict[str, float]:
        """Figures of the last publish and of faults, by metric name."""
        ...


def so_far(
    prompts: Sequence[Sequence[int]], params: SamplingParams, begun: SoFar | None
) -> list[list[Completion]]:
    """`begun` as lists of a call's own, `params.n` for each prompt.

    Raises:
      ValueError: they are not as many, or an unfinished one has no room left.
    """
    if begun is None:
        return [[NOT_BEGUN] * params.n for _ in prompts]
    found = [list(completions) for completions in begun]
    if [len(completions) for completions in found] != [params.n] * len(prompts):
        raise ValueError(f"begun: give {params.n} completions of each prompt")
    for i, completions in enumerate(found):
        for c in completions:
            if c.unfinished and len(c.token_ids) >= params.max_tokens:
                raise ValueError(
                    f"begun: prompt {i} has an unfinished completion of"
                    f" {len(c.token_ids)} tokens; max_tokens={params.max_tokens}"
                )
    return found
