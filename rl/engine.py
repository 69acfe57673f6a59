"""Defines `Engine`, which runs the computations of a run on its devices."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

from configs.base import DType, Objective
from models import hf, lora, peft_folder
from models.config import DecoderConfig
from models.decoder import Params
from rl.checkpoint import Checkpoints
from rl.processes.group import Processes, SingleProcess
from rl.processes.joint import joint
from rl.progress import phase, watch
from rl.types import Batch, Hyper
from rl.update.examine import check_finite
from rl.update.rejection import Reject
from rl.update.step import Score, Step, TrainState
from rollout.layout import with_shardings
from rollout.types import (
    Completion,
    Completions,
    OnFinished,
    OnPause,
    PolicySampler,
    SamplingParams,
    start_completions,
)
from sharding.rules import put_sharded


@dataclasses.dataclass(kw_only=True, eq=False)
class Engine:
    """Samples from, updates, publishes, saves, restores and exports the policy.

    All processes of a run make the calls of the joint methods (`rl.processes.joint`).
    Their arguments, except callbacks, are host data, which the leader sends to the
    other processes.
    """

    config: DecoderConfig
    step: Step  # the jitted functions of an update
    state: TrainState  # parameters, optimizer state, counters, reference
    sampler: PolicySampler
    checkpoints: Checkpoints
    assets: pathlib.Path  # folder with the tokenizer and other files for exports
    base: Params  # the frozen parameters under the adapters; {} without adapters
    base_name: str  # path or Hub id of the base model, for exported adapters
    reference: Params | None  # reference model, unless it is in `state.reference`
    score_reference: Score  # computes log-probabilities by the reference model
    settings: Objective
    reject: Reject | None  # removes tokens from the loss; needs `old_logprobs`
    check_stop: Callable[[], None]  # called during sampling; an error ends sampling
    processes: Processes
    embedded: bool  # all processes sample together on their devices, without servers

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
        """Samples from the published policy and shows the progress; see `Sampler`.

        Joint if the sampler is embedded. Samplers pause between the same device
        programs in all processes. In each pause the leader sends its decision whether
        sampling ends.
        """
        started = start_completions(prompts, params, partial)
        total = sum(c.unfinished for completions in started for c in completions)

        def finished(prompt: int, sample: int, completion: Completion) -> None:
            count.update()
            if on_finished is not None:
                on_finished(prompt, sample, completion)

        def pause() -> bool:
            self.check_stop()
            enough = on_pause is not None and bool(on_pause())
            joined.announce("enough" if enough else "go on")
            return enough

        joined = self.processes if self.embedded else SingleProcess()
        joined.announce("sample", prompts, params, seed=seed, partial=partial)
        try:
            with watch("sample", total=total, unit="completions") as count:
                return self.sampler.sample(
                    prompts,
                    params,
                    seed=seed,
                    partial=partial,
                    on_finished=finished,
                    on_pause=pause,
                )
        except BaseException:
            joined.announce("leave")
            raise

    @property
    def policy(self) -> Params:
        """Returns all parameters, trained and frozen."""
        return lora.join(self.state.params, self.base)

    @property
    def updates(self) -> int:
        """Returns the number of optimizer updates so far, without skipped ones."""
        return int(self.state.updates)

    @property
    def skipped(self) -> tuple[int, int]:
        """Returns counts of skipped updates: since the last applied one, and in all."""
        return int(self.state.skipped), int(self.state.skipped_in_all)

    @joint
    def update(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[dict[str, Any]]:
        """Runs one update for each of `hypers`; skips updates that are not finite.

        A mini-batch is a list of micro-batches of NumPy arrays. Each update uses the
        next mini-batch, after the last one the first again. Returns one dictionary per
        update: the statistics of `rl.update.objective.Objective`, the loss, the
        gradient norm, and whether the update was skipped. Raises OSError if a save in
        the background has failed.
        """
        self.checkpoints.check()
        self.sampler.make_room()
        placed = self.prepare(mini_batches, hypers)
        stats: list[dict[str, Any]] = []
        for hyper, micro in zip(hypers, itertools.cycle(placed), strict=False):
            self.state, found = self.step.update(self.state, micro, hyper, self.base)
            stats.append(found)
        stats = jax.device_get(stats)
        if self.reject is not None:
            tokens = [sum(int(b.loss_mask.sum()) for b in m) for m in mini_batches]
            for found, given in zip(stats, itertools.cycle(tokens), strict=False):
                found["sum"]["rejected"] = given - found["sum"]["tokens"]
        return stats

    def prepare(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[list[Batch]]:
        """Copies mini-batches to devices, with the log-probabilities that updates need.

        This method alone decides where `old_logprobs` come from:

        * a single update needs none: the old policy is the current policy
          (`Hyper.first_update`);
        * if a token is off-policy and `reject` is set, they are computed first, because
          `reject` reads them on the host to remove tokens from the loss;
        * with `objective.old_logprobs = "sampler"`, they are those of the sampler,
          unless a token of the micro-batch is off-policy;
        * otherwise the policy computes them here, before the first update.
        """

        def scored(batch: Batch) -> Batch:
            placed = put_sharded(batch, self.step.rows)
            old = self.step.score(self.policy, placed, hyper)
            on_host = multihost_utils.process_allgather(old, tiled=True)
            return batch.replace(old_logprobs=on_host)

        def place(on_host: Batch) -> Batch:
            batch = put_sharded(on_host, self.step.rows)
            off_policy = source == "sampler" and on_host.off_policy.any()
            if source == "trainer" or off_policy:
                old = self.step.score(self.policy, batch, hyper)
                batch = batch.replace(old_logprobs=old)
            elif source == "sampler":
                batch = batch.replace(old_logprobs=batch.sampler_logprobs)
            if reference:
                logprobs = self.score_reference(reference, batch, hyper)
                batch = batch.replace(reference_logprobs=logprobs)
            return batch

        hyper, reference = hypers[0], self.state.reference or self.reference
        source: str = self.settings.old_logprobs
        if self.reject and any(b.off_policy.any() for m in mini_batches for b in m):
            source = "host"
            mini_batches = [self.reject([*map(scored, m)]) for m in mini_batches]
        elif len(hypers) == 1:
            source = "none"
        return [[place(batch) for batch in micro] for micro in mini_batches]

    @joint
    def publish(self, version: int) -> None:
        """Publishes the current parameters to the sampler as policy `version`.

        Every `objective.reset_every` versions, first resets the reference to the
        policy. Raises NotFinite if a trained parameter is NaN or infinite, and
        SamplerError or OSError if publishing fails.
        """
        check_finite(self.state.params, f"policy version {version} is not published")
        every = self.settings.reset_every if self.state.reference else 0
        if every and version and version % every == 0:
            trees = self.state.reference, self.state.params
            reset = jax.tree.map(lambda old, new: jnp.array(new, old.dtype), *trees)
            self.state = self.state.replace(reference=reset)
        self.sampler.publish(self.policy, version)

    @joint
    def save(
        self, step: int, loop: Mapping[str, Any], *, healthy: bool, score: float | None
    ) -> None:
        self.checkpoints.save(step, self.state, loop, healthy=healthy, score=score)

    @joint
    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Restores the newest intact checkpoint, if any; `publish` must follow.

        Returns the step and the loop's state, or None without a checkpoint.
        """
        abstract = with_shardings(self.state, self.step.shardings)
        restored = self.checkpoints.restore(abstract, make_room=self._drop_state)
        if restored is None:
            return None
        step, self.state, loop = restored
        return step, loop

    def _drop_state(self) -> None:
        # The old and the restored state of a large model do not fit in memory together.
        self.state = cast(TrainState, None)
        self.sampler.make_room()

    @joint
    def export(self, folder: str, *, card: str, dtype: DType) -> bool:
        """Writes the policy as a Hugging Face folder, with adapters merged.

        Replaces an earlier `folder`. `card` is the text of README.md. With LoRA, also
        writes the adapters alone, as a PEFT folder `adapter` next to `folder`. Returns
        False, and writes nothing, if the last update was skipped as not finite. Raises
        ValueError if a weight is not finite, before or after conversion to `dtype`.
        """
        if self.skipped[0]:
            return False
        params = self.policy
        with phase("export", folder):
            hf.save_folder(
                folder, params, self.config, assets=self.assets, dtype=dtype, card=card
            )
            if self.base:
                adapter = pathlib.Path(folder).with_name("adapter")
                peft_folder.save_folder(
                    adapter, params, self.config, base=self.base_name
                )
        return True

    @joint
    def close(self) -> None:
        """Closes the sampler, then waits for the save; raises OSError if it failed."""
        self.sampler.close()
        self.checkpoints.close()
