"""Samples from vLLM servers and checks that they serve the policy in training."""

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

# Largest mean absolute difference of log-probs that rounding explains, by dtype.
# Measured between vLLM and a float32 forward pass: 2e-6 (float32), 0.013 (bfloat16).
PROBE_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
# The same for adapters: the server computes `(x A) B`, the trainer `x (A B)`.
ADAPTER_PROBE_TOLERANCE = {"float32": 3e-4, "bfloat16": 0.1, "float16": 0.04}
PROBE_DRAW = SamplingParams(max_tokens=16, stop_token_ids=(), ignore_stop=True)


class VllmSampler(FleetSampler):
    """Implements `PolicySampler` with one or several vLLM servers."""

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
          weights: the folder that publishes weights to the servers.
          probe: a function of parameters and sequences that returns the trainer's
            log-probs at temperature 1. Each result is `float32 [n]`, entry t for token
            t; only the last 16 entries, those of the completion, are used. Called with
            one sequence per server in each publish.
          probe_prompt: the token ids of the probe's prompt, long enough to fill several
            blocks of the key-value cache.
          probe_tolerance: the largest mean absolute difference of log-probs after an
            update, in nats.
          max_model_len: the maximum length of a prompt with its completion.
          in_flight: the effect of a publish on running requests: "abort" drops and
            repeats them, "keep" continues them with the new weights.
          sync_seconds: the timeout of each phase of a weight update.
          model_specs: the shapes and dtypes of the servers' model if only adapters are
            published; None if all weights are.
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
        # Labels contain a run id, to detect two trainers that update one server.
        self._run = secrets.token_hex(4)
        self._current: PublishedWeights | None = None
        self._metrics: dict[str, float] = {}
        try:
            fleet.start(self._attach, self._update, self._check_restarted)
        except BaseException:
            self.close()
            raise

    def make_room(self) -> None:
        """Does nothing, because the servers have their own memory."""

    def metrics(self) -> dict[str, float]:
        """Returns restarts, and times and log-prob differences of the last publish."""
        return self._metrics | {"sampler/restarts": float(self._fleet.restarts)}

    def close(self) -> None:
        super().close()
        self._weights.close()

    @property
    def _published(self) -> PublishedWeights:
        assert self._current is not None  # servers are updated only after a write
        return self._current

    def _version_of(self, label: str) -> int:
        run, _, version = label.rpartition(":")
        if run != self._run:
            raise OutOfStep(
                f"a vLLM server sampled tokens with weights {label!r}, which this run"
                " did not publish; stop any other trainer that updates this server"
            )
        return int(version)

    # -- weights ---------------------------------------------------------------------

    def publish(self, params: Any, version: int) -> None:
        """Serves `params` as `version` on all servers, and checks their log-probs.

        Raises:
          OutOfStep: a server's log-probs differ from the trainer's for `params`, or it
            sampled with another version.
          LoadFailed: a server could not load the weights. The servers return to the
            previous version, if there is one.
          ServerRefused: a server rejected the update or cannot serve the policy.
          ServerFailed: a server did not start, or no server is left.
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
        """Checks that a server that has just started can serve the policy."""
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
        """Loads the current weights into a server.

        Returns:
          The seconds for which the server was paused, and its completion of the probe
          prompt.
        """
        current = self._published
        paused = client.update(
            label=current.label,
            path=current.path,
            checksums=current.checksums,
            mode=self._in_flight,
            timeout=self._sync_seconds,
            adapter=self._adapter,
        )
        # The probe is an ordinary request, so that it tests the prefix cache too.
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
        """Compares the servers' log-probs of probe completions with the trainer's.

        Args:
          params: the published parameters.
          answers: the client and the probe completion of each server.

        Returns:
          The absolute differences of all probe tokens, in nats.

        Raises:
          OutOfStep: see `_check_probe`.
        """
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
        """Compares a server's log-probs of a probe completion with the trainer's.

        Args:
          client: the client of the server.
          answer: the server's completion of the probe prompt.
          own: the trainer's log-probs of the leading tokens of `answer`.

        Returns:
          The absolute difference for each entry of `own`, in nats.

        Raises:
          OutOfStep: the server sampled with another version, or the mean difference
            exceeds the tolerance.
        """
        version = self._version_of(self._published.label)
        if (answer.versions != version).any():
            raise OutOfStep(
                f"{client.url} sampled with version {answer.versions.min()} after"
                f" version {version} was published to it; restart the server, and stop"
                " any other trainer that updates it"
            )
        served = answer.sampler_logprobs
        gap = np.abs(own - served[: len(own)])
        if not gap.mean() <= self._probe_tolerance:
            worst = int(gap.argmax())
            raise OutOfStep(
                f"{client.url} does not serve version {version}: log-probs of"
                f" {len(gap)} probe tokens differ by {gap.mean():.3g} on average (limit"
                f" {self._probe_tolerance:g}); worst: server {served[worst]:.4f},"
                f" trainer {own[worst]:.4f}; if rounding explains the difference, raise"
                " config.rollout.vllm.probe_tolerance"
            )
        return gap

    def _check_restarted(
        self, client: VllmClient, found: tuple[float, Completion]
    ) -> None:
        """Compares a restarted server with the trainer's log-probs of the last publish.

        The trainer may be busy, so it computes no new log-probs. Only the first tokens
        are compared, as far as they equal those of the last publish.

        Raises:
          OutOfStep: the first token differs, or `_check_probe` fails.
        """
        _, answer = found
        label, token_ids, own = self._probed
        if label != self._published.label:
            return  # the publish in progress checks this server
        same = int(np.cumprod(answer.token_ids == token_ids).sum())
        if not same:
            raise OutOfStep(
                f"{client.url} was restarted and then sampled token"
                f" {answer.token_ids[0]} for the probe, but token {token_ids[0]} before"
                " the restart, with the same weights and seed; restart the run"
            )
        self._check_probe(client, answer, own[:same])
