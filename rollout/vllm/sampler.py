"""Sampling by vLLM servers, held in step with the policy that is trained."""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from rollout.types import (
    Completion,
    OnFinished,
    OnPause,
    SamplingParams,
    SoFar,
)
from rollout.vllm.client import LoadFailed, OutOfStep, VllmClient
from rollout.vllm.fan_out import check_lengths, sample_all
from rollout.vllm.fleet import Fleet
from rollout.vllm.server import VllmServer
from rollout.vllm.weight_folder import PublishedWeights, WeightFolder

log = logging.getLogger(__name__)
Probe = Callable[[Any, Sequence[Sequence[int]]], Sequence[np.ndarray]]

# Mean absolute difference of log-probs that rounding explains. Measured between vLLM
# and a float32 forward: 2e-6 and 0.013.
PROBE_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
PROBE_DRAW = SamplingParams(max_tokens=16, stop_token_ids=(), ignore_stop=True)


class VllmSampler:
    """A `Sampler` over one or several vLLM servers."""

    def __init__(
        self,
        *,
        servers: Sequence[VllmServer] = (),
        urls: Sequence[str] = (),
        api_key: str = "",
        weights: WeightFolder,
        probe: Probe,
        probe_prompt: Sequence[int],
        probe_tolerance: float,
        max_model_len: int,
        in_flight: Literal["abort", "keep"] = "abort",
        carry: bool = False,
        concurrency: int = 255,
        start_seconds: float = 900.0,
        sync_seconds: float = 300.0,
        stall_seconds: float = 120.0,
        max_restarts: int = 3,
    ):
        """Starts the servers; the first `publish` waits for them.

        Args:
          servers: not yet started; they end with this process.
          urls: servers that run already. They are attached to, and live on.
          api_key: of the servers at `urls`.
          weights: where versions are written for them.
          probe: the trainer's own log-probs of sequences under given parameters at
            temperature 1, `float32 [n]` each, entry t for producing token t (entry 0 is
            not looked at). Called once per publish, with one sequence per server.
          probe_prompt: long enough to fill some blocks of the key-value cache.
          probe_tolerance: largest mean difference after a sync, in nats.
          max_model_len: longest prompt and completion together.
          in_flight: what a publish does to requests in flight: "abort" drops and
            repeats them, "keep" continues them under the new weights.
          carry: whether calls may end before all is drawn, and go on in later ones.
          concurrency: requests at a time per server; one slot fewer than the server has
            leaves room for the probe.
          start_seconds: for a server to come up.
          sync_seconds: for each phase of a weight update.
          stall_seconds: without a token while there is work, before a server counts as
            hung.
          max_restarts: per server, between two publishes.
        """
        self._weights = weights
        self._probe = probe
        self._probe_prompt = list(probe_prompt)
        self._probe_tolerance = probe_tolerance
        self._max_model_len = max_model_len
        self._in_flight = in_flight
        self._carry = carry
        self._sync_seconds = sync_seconds
        self._max_restarts = max_restarts
        # A label names the run too: two trainers on one server must not pass unseen.
        self._run = secrets.token_hex(4)
        self._current: PublishedWeights | None = None
        self._metrics: dict[str, float] = {}
        self._served_at = 0.0
        self._fleet = Fleet(
            servers=servers,
            urls=urls,
            api_key=api_key,
            greet=self._greet,
            bring_up_to_date=self._bring_up_to_date,
            mended=self._check_mended,
            concurrency=concurrency,
            start_seconds=start_seconds,
            stall_seconds=stall_seconds,
            max_restarts=max_restarts,
        )

    def make_room(self) -> None:
        """The servers have devices of their own."""

    def metrics(self) -> dict[str, float]:
        """Figures of the last publish, and the restarts so far."""
        return self._metrics | {"sampler/restarts": float(self._fleet.restarts)}

    def close(self) -> None:
        """Ends the servers that were started here; the others go on serving."""
        self._fleet.close()
        self._weights.close()

    # -- drawing ---------------------------------------------------------------------

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
        """See `Sampler.sample`. May be called from several threads.

        Raises:
          ServerFailed: no server is left, and why.
          ServerRefused: a server turned a request down, in its words.
        """
        if self._current is None:
            raise RuntimeError("publish a policy before sampling from it")
        check_lengths(prompts, params, self._max_model_len)
        return sample_all(
            self._fleet,
            prompts,
            params,
            seed=seed,
            version_of=self._version_of,
            most_faults=self._max_restarts + 2,
            begun=begun,
            on_finished=on_finished,
            on_pause=on_pause,
        )

    def _version_of(self, label: str) -> int:
        # A server that reports no versions is never updated under a request.
        run, _, version = (label or self._current.label).rpartition(":")
        if run != self._run:
            raise OutOfStep(
                f"a server drew tokens with weights {label!r}, which this run did not"
                " publish: is another trainer feeding it?"
            )
        return int(version)

    # -- weights ---------------------------------------------------------------------

    def publish(self, params: Any, version: int) -> None:
        """Serves `params` as `version` on every server, and probes each.

        Raises:
          OutOfStep: a server's log-probs are not those of `params`.
          LoadFailed: a server could not load them. All serve the version before.
          ServerRefused, ServerFailed: an update was turned down, or no server is left.
          OSError: the weights could not be written; the servers keep the old ones.
        """
        begin = time.monotonic()
        last_good = self._current
        self._current = self._weights.write(
            params, f"{self._run}:{version}", keep=last_good
        )
        written = time.monotonic()
        try:
            found = self._fleet.update()
        except LoadFailed:
            self._current = last_good
            if last_good is not None:
                self._fleet.update()
            raise
        gaps = self._prove(params, [(client, answer) for client, (_, answer) in found])
        self._metrics = {
            "sampler/write_seconds": written - begin,
            "sampler/update_seconds": self._served_at - written,
            "sampler/publish_seconds": time.monotonic() - begin,
            "sampler/pause_seconds": max(pause for _, (pause, _) in found),
            "sampler/probe_gap_mean": float(gaps.mean()),
            "sampler/probe_gap_max": float(gaps.max()),
        }

    def _greet(self, client: VllmClient) -> None:
        client.attach_to_train(
            max_model_len=self._max_model_len,
            needs_versions=self._carry or self._in_flight == "keep",
        )
        client.check_policy(
            shapes={name: list(s) for name, (s, _) in self._weights.specs.items()},
            dtype=self._weights.dtype,
            owner=str(self._weights.owner),
            token=self._weights.token,
            timeout=self._sync_seconds,
        )

    def _bring_up_to_date(self, client: VllmClient) -> tuple[float, Completion]:
        """Loads the current weights; returns the pause and what the probe sampled."""
        current = self._current
        paused = client.update(
            label=current.label,
            path=current.path,
            checksums=current.checksums,
            mode=self._in_flight,
            timeout=self._sync_seconds,
        )
        self._served_at = time.monotonic()
        # By the ordinary path, cached prefix and all: that is what must be right.
        answer = client.generate(
            self._probe_prompt,
            PROBE_DRAW,
            seed=0,
            version_of=self._version_of,
            timeout=self._sync_seconds,
        )
        return paused, answer

    def _prove(
        self, params: Any, answers: Sequence[tuple[VllmClient, Completion]]
    ) -> np.ndarray:
        """Compares every server with the trainer; see `publish` for errors."""
        sequences = [[*self._probe_prompt, *a.token_ids.tolist()] for _, a in answers]
        scored = self._probe(params, sequences)
        own = [np.asarray(logprobs)[-PROBE_DRAW.max_tokens :] for logprobs in scored]
        gaps = [
            self._check_probe(client, answer, logprobs)
            for (client, answer), logprobs in zip(answers, own, strict=True)
        ]
        label = self._current.label
        self._proved = label, answers[0][1].token_ids, own[0]
        return np.concatenate(gaps)

    def _check_probe(
        self, client: VllmClient, answer: Completion, own: np.ndarray
    ) -> np.ndarray:
        """The gaps between a server's log-probs of its probe tokens and our own."""
        version = self._version_of(self._current.label)
        if (answer.versions != version).any():
            raise OutOfStep(
                f"{client.url} reports version {answer.versions.min()} after version"
                f" {version} was published to it"
            )
        served = answer.sampler_logprobs
        gap = np.abs(own - served[: len(own)])
        if not gap.mean() <= self._probe_tolerance:
            worst = int(gap.argmax())
            raise OutOfStep(
                f"{client.url} does not serve version {version}: log-probs of"
                f" {len(gap)} probe tokens differ by {gap.mean():.3g} on average (bound"
                f" {self._probe_tolerance:g}); worst: server {served[worst]:.4f},"
                f" trainer {own[worst]:.4f}"
            )
        return gap

    def _check_mended(
        self, client: VllmClient, found: tuple[float, Completion]
    ) -> None:
        """Holds a mended server to what was proved of this version at its publish.

        The trainer may be in the middle of an update, so its log-probs of that time are
        used, as far as the same seed has drawn the same tokens again.
        """
        _, answer = found
        label, token_ids, own = self._proved
        if label != self._current.label:
            return  # a publish is under way and will prove it
        same = int(np.cumprod(answer.token_ids == token_ids).sum())
        if not same:
            raise OutOfStep(
                f"{client.url} draws {answer.token_ids[0]} after its restart where"
                f" {token_ids[0]} was drawn with the same weights and seed"
            )
        self._check_probe(client, answer, own[:same])
