"""Publishes the policy to vLLM servers, and samples from them.

A publish writes a version of the weights to a folder, which the servers load. Each
server then completes a fixed prompt (the probe). The server's log-probs for this
completion are compared with the trainer's.

    ROOT/policy-weights-PID-TOKEN/     the folder of one run, mode 700
        owner                          locked while the trainer runs; begins with TOKEN
        0/model.safetensors            two versions: the served one and
        1/model.safetensors            the one being published

A version of adapters consists of adapter_model.safetensors and adapter_config.json.
ROOT is shared memory, or a directory that the servers share with the trainer.
"""

import collections
import contextlib
import dataclasses
import fcntl
import logging
import math
import os
import pathlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from models import peft_folder
from models.config import DecoderConfig
from models.decoder import Params
from models.safetensors_io import Specs, write_tensors
from models.tensors import EMBEDDING, HEAD, Weight, export_tensors, tensor_specs
from rollout.types import Completion, SamplingParams
from rollout.vllm.client import (
    LoadFailed,
    OutOfStep,
    PublishedWeights,
    VllmClient,
    checksum,
)
from rollout.vllm.fan_out import FanOut
from rollout.vllm.fleet import ServerFleet

Probe = Callable[[Params, Sequence[Sequence[int]]], Sequence[np.ndarray]]

# Largest mean absolute difference of log-probs that rounding explains, by dtype.
# Measured between vLLM and a float32 forward pass: 2e-6 (float32), 0.013 (bfloat16).
PROBE_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
# The same for adapters: the server computes `(x A) B`, the trainer `x (A B)`.
ADAPTER_PROBE_TOLERANCE = {"float32": 3e-4, "bfloat16": 0.1, "float16": 0.04}
PROBE_DRAW = SamplingParams(max_tokens=16, stop_token_ids=(), ignore_stop=True)

SHARED_MEMORY = pathlib.Path("/dev/shm")
_VERSIONS = 2  # a failed publish returns to the previous version
_PREFIX, _OWNER = "policy-weights-", "owner"
log = logging.getLogger(__name__)


class Export(NamedTuple):
    """Defines the tensors of a published version."""

    config: DecoderConfig  # the architecture of the servers' model
    dtype: np.dtype
    table: Sequence[Weight]  # `TABLE`, with adapters merged, or only `ADAPTERS`

    @property
    def specs(self) -> Specs:
        return tensor_specs(*self)

    def tensors(self, params: Params) -> Iterator[tuple[str, np.ndarray]]:
        """Yields each tensor's name and host array; all processes must exhaust it."""
        tied = "head" not in params
        config = dataclasses.replace(self.config, tie_word_embeddings=tied)
        for name, array in export_tensors(params, config, self.dtype, self.table):
            yield name, array
            # The servers' head is not tied: vLLM's reload does not update a tied head.
            if tied and name == EMBEDDING:
                yield HEAD, array


class WeightFolder:
    """Writes versions of the policy, and keeps the served one during a publish."""

    def __init__(
        self,
        weight_dir: str = "",
        *,
        fallback: pathlib.Path,
        export: Export,
        adapter_config: str = "",
    ):
        """Creates the folder, and removes the folders of killed trainers.

        Args:
          weight_dir: the parent of the folder; if empty, shared memory.
          fallback: the parent if `weight_dir` is empty and shared memory is too small.
          adapter_config: the text of adapter_config.json, if `export` exports only
            adapters; otherwise empty.

        Raises OSError if two versions do not fit, or the parent is not writable.
        """
        self.export, self._adapter_config = export, adapter_config
        self.adapter = bool(adapter_config)
        self._file = peft_folder.WEIGHTS if self.adapter else "model.safetensors"
        shapes = [shape for shape, _ in export.specs.values()]
        self._bytes = export.dtype.itemsize * sum(map(math.prod, shapes))
        parents = (
            [pathlib.Path(weight_dir)] if weight_dir else [SHARED_MEMORY, fallback]
        )
        for parent in parents:
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            try:
                _check_space(parent, _VERSIONS * self._bytes)
                break
            except OSError as error:
                if parent is parents[-1]:
                    raise
                log.warning("%s; using %s, which is slower", error, fallback)
        self.token = secrets.token_hex(16)
        name = f"{_PREFIX}{os.getpid()}-{self.token[:8]}"
        self.path = parent.absolute() / name
        self._lock: int | None = _claim(self.path, self.token)
        self.owner = self.path / _OWNER  # servers prove access by reading this file

    def write(
        self, params: Params, label: str, *, keep: PublishedWeights | None
    ) -> PublishedWeights:
        """Writes a version, one tensor at a time, without changing the version `keep`.

        Raises OSError if the folder is full or not writable.
        """
        slots = [self.path / str(i) / self._file for i in range(_VERSIONS)]
        path = next(slot for slot in slots if keep is None or str(slot) != keep.path)
        path.parent.mkdir(exist_ok=True)
        if self.adapter:
            (path.parent / peft_folder.CONFIG).write_text(self._adapter_config)
        held = path.stat().st_size if path.exists() else 0
        _check_space(self.path, self._bytes - held)
        checksums: dict[str, int] = {}

        def tensors() -> Iterator[tuple[str, np.ndarray]]:
            for name, array in self.export.tensors(params):
                array = np.ascontiguousarray(array)
                checksums[name] = checksum(array)
                yield name, array

        try:
            write_tensors(path, self.export.specs, tensors())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return PublishedWeights(label, str(path), checksums)

    def close(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _check_space(folder: pathlib.Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder} has {free / 1e9:.2f} GB free, but {needed / 1e9:.2f} GB are"
            " needed to publish the policy's weights; set"
            " config.rollout.vllm.weight_dir to a directory with more space"
        )


def _claim(folder: pathlib.Path, text: str) -> int:
    """Creates a folder with a locked file `owner`; returns the file's descriptor."""
    # Until it is locked, the folder has a name that `_remove_abandoned` does not match.
    unlocked = folder.with_name(f".{folder.name}.unlocked")
    unlocked.mkdir(0o700)
    try:
        lock = os.open(unlocked / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(lock, text.encode())
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unlocked.rename(folder)
    except BaseException:  # a full disk or a signal
        shutil.rmtree(unlocked, ignore_errors=True)
        raise
    return lock


def _remove_abandoned(parent: pathlib.Path) -> None:
    """Removes the folders of killed trainers, whose locks ended with the processes."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            with (folder / _OWNER).open("r+") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:  # an earlier removal was interrupted
            pass
        except OSError:  # in use, or owned by another user
            continue
        log.info("removing %s, which no process uses", folder)
        shutil.rmtree(folder, ignore_errors=True)


class VllmSampler:
    """Implements `PolicySampler` with one or several vLLM servers."""

    _sync_seconds = 600.0  # the timeout of each request of a publish

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
    ):
        """Starts the servers; the first `publish` waits for them.

        Args:
          fleet: the servers, not yet started.
          probe: a function of a parameter tree and token sequences. It returns the
            trainer's log-probs at temperature 1, `float32 [n]` for each sequence, with
            entry t for token t.
          probe_prompt: the token ids of the probe's prompt, long enough to fill several
            blocks of the key-value cache.
          probe_tolerance: the largest mean absolute difference between the log-probs of
            a server and of the trainer after an update, in nats.
          in_flight: the effect of a publish on running requests: "abort" drops and
            repeats them, "keep" continues them with the new weights.
        """
        self._fleet, self._weights = fleet, weights
        self._max_model_len = max_model_len
        self.sample = FanOut(
            fleet, max_model_len=max_model_len, version_of=self._version_of
        ).sample
        self._probe = probe
        self._probe_prompt = list(probe_prompt)
        self._probe_tolerance = probe_tolerance
        self._in_flight = in_flight
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
        return self._metrics | {"sampler/restarts": float(self._fleet.restarts)}

    def close(self) -> None:
        self._fleet.close()
        self._weights.close()

    @property
    def _published(self) -> PublishedWeights:
        assert self._current is not None
        return self._current

    def _version_of(self, label: str) -> int:
        run, _, version = label.rpartition(":")
        if run != self._run:
            raise OutOfStep(
                f"a vLLM server sampled tokens with weights {label!r}, which this run"
                " did not publish; stop any other trainer that updates this server"
            )
        return int(version)

    # -- publish ---------------------------------------------------------------------

    def publish(self, params: Params, version: int) -> None:
        """Serves `params` as `version` on all servers, and checks their log-probs.

        Raises:
          OutOfStep: a server's log-probs differ too much from the trainer's log-probs
            for `params`, or the server sampled with another version.
          LoadFailed: a server could not load the weights. The servers return to the
            previous version, if there is one.
          ServerRefused: a server rejects the update or cannot serve the policy.
          ServerFailed: a server does not start or answer, or none is left.
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
        gap = self._compare(params, found)
        self._metrics = {
            "sampler/write_seconds": written - begin,
            "sampler/update_seconds": updated - written,
            "sampler/publish_seconds": time.monotonic() - begin,
            "sampler/pause_seconds": max(pause for _, (pause, _) in found),
            "sampler/probe_gap_mean": float(gap.mean()),
            "sampler/probe_gap_max": float(gap.max()),
        }

    def _attach(self, client: VllmClient) -> None:
        config, dtype, _ = self._weights.export
        specs = tensor_specs(config, dtype)
        policy = {
            "shapes": {name: list(shape) for name, (shape, _) in specs.items()},
            "dtype": dtype.name,
            "owner": str(self._weights.owner),
            "token": self._weights.token,
        }
        client.attach_to_train(
            max_model_len=self._max_model_len,
            policy=policy,
            timeout=self._sync_seconds,
            adapter=self._weights.adapter,
        )

    def _update(self, client: VllmClient) -> tuple[float, Completion]:
        """Updates a server; returns the pause in seconds and the probe's completion."""
        paused = client.update(
            self._published,
            mode=self._in_flight,
            timeout=self._sync_seconds,
            adapter=self._weights.adapter,
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

    def _compare(self, params: Params, found) -> np.ndarray:
        clients, updates = zip(*found, strict=True)
        answers = [answer for _, answer in updates]
        sequences = [[*self._probe_prompt, *a.token_ids.tolist()] for a in answers]
        scored = self._probe(params, sequences)
        own = [np.asarray(logprobs)[-PROBE_DRAW.max_tokens :] for logprobs in scored]
        gaps = list(map(self._gap, clients, answers, own))
        self._probed = self._published.label, answers[0].token_ids, own[0]
        return np.concatenate(gaps)

    def _gap(
        self, client: VllmClient, answer: Completion, own: np.ndarray
    ) -> np.ndarray:
        """Returns `|own - log-probs of the server|` for the leading tokens of `answer`.

        `own` has the trainer's log-probs of these tokens. Raises OutOfStep if the mean
        difference is too large, the answer is unfinished, or its version is wrong.
        """
        version = self._version_of(self._published.label)
        versions = sorted(set(answer.versions.tolist()))
        if answer.unfinished or versions != [version]:
            raise OutOfStep(
                f"{client.url} sampled {len(answer.token_ids)} of"
                f" {PROBE_DRAW.max_tokens} probe tokens with versions {versions} after"
                f" version {version} was published to it; restart the server, and stop"
                " any other trainer that updates it"
            )
        served = answer.sampler_logprobs
        gap = np.abs(own - served[: len(own)])
        if not gap.mean() <= self._probe_tolerance:
            worst = int(gap.argmax())
            raise OutOfStep(
                f"{client.url} seems not to serve version {version}: log-probs of"
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

        The trainer may be busy, so it computes no new log-probs. Only the leading
        tokens that equal those of the last publish's probe are compared.
        """
        _, answer = found
        label, token_ids, own = self._probed
        if label != self._published.label:
            return  # the publish in progress checks this server
        same = 0
        if not answer.unfinished:  # `_gap` rejects an unfinished one
            same = int(np.cumprod(answer.token_ids == token_ids).sum())
        if not (same or answer.unfinished):
            raise OutOfStep(
                f"{client.url} was restarted and then sampled token"
                f" {answer.token_ids[0]} for the probe, but token {token_ids[0]} before"
                " the restart, with the same weights and seed; restart the run"
            )
        self._gap(client, answer, own[:same])


class FollowerSampler:
    """Takes part in gathering and probing weights, in all processes but process 0."""

    def __init__(self, export: Export, probe: Probe):
        self._export, self._probe = export, probe

    def publish(self, params: Params, version: int) -> None:
        collections.deque(self._export.tensors(params), maxlen=0)
        self._probe(params, [])

    def sample(self, prompts, params, **how) -> list[list[Completion]]:
        raise RuntimeError(
            f"process {jax.process_index()}: only process 0 samples from vLLM servers"
        )

    def make_room(self) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...
