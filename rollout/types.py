"""Defines the interface of samplers and the completions that they return."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np

FinishReason = Literal["stop", "length", "unfinished"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Holds the sampling parameters of one call of `Sampler.sample`."""

    n: int = 1  # completions per prompt
    max_tokens: int  # maximum tokens per completion, with the stop token
    temperature: float = 1.0  # 0 is greedy decoding
    top_p: float = 1.0  # nucleus mass in (0, 1]; 1 samples from the full distribution
    stop_token_ids: tuple[int, ...]  # ids that end a completion, as its last token
    ignore_stop: bool = False  # always sample `max_tokens` tokens, as benchmarks do

    def __post_init__(self):
        if not self.temperature >= 0:
            raise ValueError(f"temperature={self.temperature}: must be 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: must lie in (0, 1]")
        if not self.stop_token_ids and not self.ignore_stop:
            raise ValueError(
                "stop_token_ids=(): give at least one id, or set ignore_stop=True"
            )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """Represents one completion of a prompt as sampled token ids.

    Entry t of each array belongs to `token_ids[t]`.
    """

    token_ids: np.ndarray  # int32 [n], with the stop token if there is one
    # float32 [n], log-probability of each token in the sampling distribution (for
    # greedy decoding, the softmax of the logits), in nats.
    sampler_logprobs: np.ndarray
    # "stop": the last token is a stop token. "length": the completion was truncated at
    # `max_tokens`. "unfinished": sampling was interrupted.
    finish_reason: FinishReason
    # int32 [n], policy version (training steps done) that sampled each token.
    versions: np.ndarray

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def unfinished(self) -> bool:
        return self.finish_reason == "unfinished"

    def followed_by(self, rest: "Completion") -> "Completion":
        """Returns this partial completion with the tokens of `rest` appended."""
        if not len(self.token_ids):
            return rest
        return Completion(
            np.concatenate([self.token_ids, rest.token_ids]),
            np.concatenate([self.sampler_logprobs, rest.sampler_logprobs]),
            rest.finish_reason,
            np.concatenate([self.versions, rest.versions]),
        )


EMPTY = Completion(
    np.zeros(0, np.int32), np.zeros(0, np.float32), "unfinished", np.zeros(0, np.int32)
)
OnFinished = Callable[[int, int, Completion], None]
OnPause = Callable[[], bool | None]
Completions = Sequence[Sequence[Completion]]


class SamplerError(RuntimeError):
    """Reports that sampling cannot continue; the message says why."""


class Sampler(Protocol):
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        partial: Completions | None = None,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        """Samples `params.n` completions for each prompt.

        Equal arguments and weights give equal completions, except for rounding, unless
        `on_pause` ends the call early.

        Args:
          prompts: the token ids of each prompt, at least one token.
          seed: a non-negative random seed, a new one for each call (`rollout.seeds`).
          partial: for each prompt, the completions that an earlier call returned. The
            unfinished ones are continued with the current weights.
          on_finished: called with (prompt index, sample index, completion) when a
            completion ends, in any order, on the calling thread.
          on_pause: called regularly on the calling thread. Its exceptions end the call.
            If it returns True, sampling stops, and the completions that have not ended
            are returned unfinished.

        Raises:
          ValueError: a prompt is empty or too long, or `partial` does not fit.
          SamplerError: sampling cannot continue.
        """
        ...

    def close(self) -> None:
        """Releases devices, processes and files; a second call has no effect."""
        ...


class PolicySampler(Sampler, Protocol):
    def publish(self, params, version: int) -> None:
        """Replaces the weights; later completions report `version` for their tokens."""
        ...

    def make_room(self) -> None:
        """Frees memory on the trainer's devices until the next publish."""
        ...

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the last publish and of server restarts; may be empty."""
        ...


def check_lengths(
    prompts: Sequence[Sequence[int]], params: SamplingParams, limit: int
) -> None:
    """Raises ValueError if a prompt is empty, or prompt + `max_tokens` > `limit`."""
    for i, prompt in enumerate(prompts):
        if not 0 < len(prompt) <= limit - params.max_tokens:
            raise ValueError(
                f"prompt {i}: length {len(prompt)} must be from 1 to"
                f" {limit - params.max_tokens} ({limit} tokens less max_tokens="
                f"{params.max_tokens}); shorten the prompt or lower max_tokens"
            )


def start_completions(
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    partial: Completions | None,
) -> list[list[Completion]]:
    """Returns a copy of `partial`, or `params.n` empty completions for each prompt.

    Raises ValueError if `partial` does not have `params.n` completions for each prompt,
    or if an unfinished completion already has `params.max_tokens` tokens.
    """
    if partial is None:
        return [[EMPTY] * params.n for _ in prompts]
    found = [list(completions) for completions in partial]
    if [len(completions) for completions in found] != [params.n] * len(prompts):
        raise ValueError(
            f"partial: must have n={params.n} entries for each prompt (number of"
            f" prompts: {len(prompts)})"
        )
    for i, completions in enumerate(found):
        for c in completions:
            if c.unfinished and len(c.token_ids) >= params.max_tokens:
                raise ValueError(
                    f"partial: prompt {i} has an unfinished completion of"
                    f" {len(c.token_ids)} tokens: must be fewer than"
                    f" max_tokens={params.max_tokens}"
                )
    return found
