"""The interface of samplers."""

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
        out first, which is what truncated means. "unfinished": the call ended before.
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
        """Returns this unfinished completion with the tokens drawn after it."""
        if not len(self.token_ids):
            return rest
        return Completion(
            np.concatenate([self.token_ids, rest.token_ids]),
            np.concatenate([self.sampler_logprobs, rest.sampler_logprobs]),
            rest.finish_reason,
            np.concatenate([self.versions, rest.versions]),
        )


NOT_BEGUN = Completion(
    np.zeros(0, np.int32), np.zeros(0, np.float32), "unfinished", np.zeros(0, np.int32)
)
OnFinished = Callable[[int, int, Completion], None]
OnPause = Callable[[], bool | None]
SoFar = Sequence[Sequence[Completion]]


class SamplerError(RuntimeError):
    """Sampling cannot continue; one line that says why and what to do."""


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

        Equal arguments and weights give equal completions, unless the call is ended
        early.

        Args:
          prompts: token ids per prompt, none empty.
          params: how tokens are drawn.
          seed: non-negative; callers take a fresh one per call (see `rollout.seeds`).
          begun: each prompt's completions as an earlier call returned them; unfinished
            ones are continued with the current weights.
          on_finished: called as `(prompt index, sample index, completion)` when a
            completion ends, in any order, on the calling thread.
          on_pause: called regularly on that thread. An exception from it ends the
            call; True returns what there is, with the rest unfinished.

        Returns:
          For each prompt, its `params.n` completions.
        """
        ...

    def close(self) -> None:
        """Frees devices, processes and files. Safe to call twice."""
        ...


class PolicySampler(Sampler, Protocol):
    """A sampler of a policy in training."""

    def publish(self, params, version: int) -> None:
        """Serves `params` (the model's parameter tree) as `version` from here on."""
        ...

    def make_room(self) -> None:
        """Frees memory of the trainer's devices until the next publish."""
        ...

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the last publish and of failures."""
        ...


def so_far(
    prompts: Sequence[Sequence[int]], params: SamplingParams, begun: SoFar | None
) -> list[list[Completion]]:
    """Returns a copy of `begun`, or `params.n` empty completions for each prompt.

    Raises:
      ValueError: another number of them, or an unfinished one is full.
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
