"""Samples from vLLM servers that serve the policy in training, and probes them."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.safetensors_io import Specs
from rollout.types import Completion, SamplingParams
from rollout.vllm.client import LoadFailed, OutOfStep, VllmClient
from rollout.vllm.fan_out import FleetSampler
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.weight_folder import PublishedWeights, WeightFolder

Probe = Callable[[Any, Sequence[Sequence[int]]], Sequence[np.ndarray]]

# Mean absolute difference of log-probs that rounding explains. Measured between vLLM
# and a float32 forward: 2e-6 and 0.013.
PROBE_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
# Of adapters alone: the server computes `(x A) B`, the trainer `x (A B)`.
ADAPTER_PROBE_TOLERANCE = {"float32": 3e-4, "bfloat16": 0.1, "float16": 0.04}
PROBE_DRAW = SamplingParams(max_tokens=16, stop_token_ids=(), ignore_stop=True)


class VllmSampler(FleetSampler):
    """A `PolicySampler` over one or several vLLM servers."""

    def __init__(
        self,
        *,
        fleet: ServerFleet,
        weights: WeightFolder,
        probe: Probe,
        probe_prompt: Sequence[int],
        probe_tolerance: float,
        max_model_len: int,
        in_flight: str = "abort",
        sync_seconds: float = 600.0,
        model_specs: Specs | None = None,
    ):
        """Starts the servers; the first `publish` waits for them.

        Args:
          fleet: the servers, not yet started.
          weights: where versions are written for the servers.
          probe: the trainer's own log-probs of sequences under given parameters at
            temperature 1, `float32 [n]` each, entry t for producing token t (entry 0 is
            ignored). Called once per publish, with one sequence per server.
          probe_prompt: long enough to fill some blocks of the key-value cache.
          probe_tolerance: largest mean difference after an update, in nats.
          max_model_len: longest prompt and completion together.
          in_flight: what a publish does to requests in flight: "abort" drops and
            repeats them, "keep" continues them under the new weights.
          sync_seconds: for each phase of a weight update.
          model_specs: where only adapters are written, those of the servers' model;
            None: all weights are written.
        """
        super().__init__(fleet, max_model_len=max_model_len)
        self._weights = weights
        self._probe = probe
        self._probe_prompt = list(probe_prompt)
        self._probe_tolerance = probe_tolerance
        self._in_flight = in_flight
        self._sync_seconds = sync_seconds
        self._adapter = model_specs is not None
        self._model_specs = weights.specs if model_specs is None else model_specs
        # Labels name the run too, so that two trainers of one server are noticed.
        self._run = secrets.token_hex(4)
        self._current: PublishedWeights | None = None
        self._metrics: dict[str, float] = {}
        try:
            fleet.start(self._attach, self._update, self._check_restarted)
        except BaseException:
            self.close()
            raise

    def make_room(self) -> None:
        """Does nothing: the servers have their own memory."""

    def metrics(self) -> dict[str, float]:
        """Returns the last publish's durations and gaps, and the restarts so far."""
        return self._metrics | {"sampler/restarts": float(self._fleet.restarts)}

    def close(self) -> None:
        super().close()
        self._weights.close()

    @property
    def _published(self) -> PublishedWeights:
        assert self._current is not None  # servers are updated after a write
        return self._current

    def _version_of(self, label: str) -> int:
        run, _, version = label.rpartition(":")
        if run != self._run:
            raise OutOfStep(
                f"a server sampled tokens with weights {label!r}, which this run did"
                " not publish: is another trainer updating it?"
            )
        return int(version)

    # -- weights ---------------------------------------------------------------------

    def publish(self, params: Any, version: int) -> None:
        """Serves `params` as `version` on every server, and probes each.

        Raises:
          OutOfStep: a server's log-probs are not those of `params`.
          LoadFailed: a server could not load them. All serve the version before.
          ServerRefused, ServerFailed: an update was rejected, or no server is left.
          OSError: the weights could not be written; the servers keep the old ones.
        """
        begin = time.monotonic()
        last_good = self._current
        self._current = self._weights.write(
            params, f"{self._run}:{version}", keep=last_good
        )
        written = time.monotonic()
        try:
            found = self._fleet.update_all()
        except LoadFailed:
            self._current = last_good
            if last_good is not None:
                self._fleet.update_all()
            raise
        updated = time.monotonic()
        gaps = self._check_probes(params, [(c, answer) for c, (_, answer) in found])
        self._metrics = {
            "sampler/write_seconds": written - begin,
            "sampler/update_seconds": updated - written,
            "sampler/publish_seconds": time.monotonic() - begin,
            "sampler/pause_seconds": max(pause for _, (pause, _) in found),
            "sampler/probe_gap_mean": float(gaps.mean()),
            "sampler/probe_gap_max": float(gaps.max()),
        }

    def _attach(self, client: VllmClient) -> None:
        """Checks a server that has just come up."""
        weights = self._weights
        policy = {
            "shapes": {n: list(shape) for n, (shape, _) in self._model_specs.items()},
            "dtype": weights.dtype,
            "owner": str(weights.owner),
            "token": weights.token,
        }
        client.attach_to_train(
            max_model_len=self._max_model_len,
            policy=policy,
            timeout=self._sync_seconds,
            adapter=self._adapter,
        )

    def _update(self, client: VllmClient) -> tuple[float, Completion]:
        """Loads the current weights; returns the pause and the probe's completion."""
        current = self._published
        paused = client.update(
            label=current.label,
            path=current.path,
            checksums=current.checksums,
            mode=self._in_flight,
            timeout=self._sync_seconds,
            adapter=self._adapter,
        )
        # The probe is an ordinary request, so that it uses the prefix cache.
        answer = client.generate(
            self._probe_prompt,
            PROBE_DRAW,
            seed=0,
            version_of=self._version_of,
            timeout=self._sync_seconds,
        )
        return paused, answer

    # -- probe -----------------------------------------------------------------------

    def _check_probes(
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
        self._probed = self._published.label, answers[0][1].token_ids, own[0]
        return np.concatenate(gaps)

    def _check_probe(
        self, client: VllmClient, answer: Completion, own: np.ndarray
    ) -> np.ndarray:
        """Returns the gaps between a server's log-probs of its probe and `own`."""
        version = self._version_of(self._published.label)
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

    def _check_restarted(
        self, client: VllmClient, found: tuple[float, Completion]
    ) -> None:
        """Compares a restarted server with this version's probe at its publish.

        The trainer may be in the middle of an update, so its log-probs of the publish
        are used, as far as the same seed has sampled the same tokens again.
        """
        _, answer = found
        label, token_ids, own = self._probed
        if label != self._published.label:
            return  # a publish is under way and will probe it
        same = int(np.cumprod(answer.token_ids == token_ids).sum())
        if not same:
            raise OutOfStep(
                f"{client.url} samples {answer.token_ids[0]} after its restart where"
                f" {token_ids[0]} was sampled with the same weights and seed"
            )
        self._check_probe(client, answer, own[:same])
