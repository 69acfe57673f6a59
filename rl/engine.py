"""Defines `Engine`, which runs all computations on devices.

With several processes, all make the calls of `rl.processes.joint.JOINT` in the same
order, and also those of `sample` if the sampler uses the trainer's devices.
"""

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from configs.base import Objective
from models import hf, lora, peft_folder
from models.config import DecoderConfig
from models.decoder import Params
from rl.checkpoint import Checkpoints, abstract_state
from rl.progress import phase
from rl.types import Batch, Hyper
from rl.update.examine import check_finite
from rl.update.step import Score, Step, TrainState
from rollout.types import Completion, PolicySampler
from sharding.rules import place

Reject = Callable[[Sequence[Batch]], list[Batch]]


class Engine:
    """Samples from, updates, publishes, saves, restores and exports the policy.

    The methods that all processes call have plain host data as arguments, so that the
    leader can send a call to the other processes (`rl.processes.joint`).

    Attributes:
      step: the jitted functions of an update.
      state: parameters, optimizer state, counters and reference, see `TrainState`.
      sampler: the sampler, which uses the last published policy.
      sample: the method `sample` of the sampler.
      checkpoints: this process's access to the checkpoints of the run.
    """

    def __init__(
        self,
        *,
        config: DecoderConfig,
        step: Step,
        state: TrainState,
        sampler: PolicySampler,
        checkpoints: Checkpoints,
        assets: pathlib.Path,
        base: Params,
        base_name: str,
        reference: Params | None,
        score_reference: Score | None,
        settings: Objective,
        reject: Reject | None,
    ):
        """Initializes the engine; `rl.setup.make_engine` makes the arguments.

        Args:
          config: the model's architecture.
          step: the jitted functions of an update.
          state: the initial train state.
          sampler: the sampler that receives published policies.
          checkpoints: access to the checkpoints of the run.
          assets: folder with the tokenizer and other files for exports.
          base: the frozen parameters under the adapters; `{}` without adapters.
          base_name: path or Hub id of the base model, written into exported adapters.
          reference: parameters of the reference model; None if the objective has none
            or if `state.reference` holds them.
          score_reference: computes log-probabilities by the reference model; None uses
            `step.score`.
          settings: the section `objective` of the config.
          reject: removes tokens from a mini-batch, which must have its old
            log-probabilities; None keeps all tokens.
        """
        self.step = step
        self.state, self._config = state, config
        self.sampler, self.checkpoints = sampler, checkpoints
        self.sample: Callable[..., list[list[Completion]]] = sampler.sample
        self._score_reference = score_reference or step.score
        self._assets, self._reference = assets, reference
        self._base, self._base_name = base, base_name
        self._settings, self._reject = settings, reject
        everywhere = NamedSharding(step.rows.mesh, PartitionSpec())
        self._gather = jax.jit(lambda x: x, out_shardings=everywhere)

    @property
    def policy(self) -> Params:
        """Returns all parameters, trained and frozen."""
        return lora.join(self.state.params, self._base)

    @property
    def updates(self) -> int:
        """Returns the number of optimizer updates so far, without skipped ones."""
        return int(self.state.updates)

    @property
    def skipped(self) -> tuple[int, int]:
        """Returns the number of updates skipped in a row up to now, and in all."""
        return int(self.state.skipped), int(self.state.skipped_in_all)

    def update(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[dict[str, Any]]:
        """Runs one update for each element of `hypers`, skipped if it is not finite.

        Args:
          mini_batches: the micro-batches of each mini-batch, as NumPy arrays.
          hypers: the scalars of each update. The mini-batches are used in order, and
            again in each epoch (`ppo_epochs`).

        Returns:
          The statistics of each update (see `rl.update.objective.Objective`), with its
          loss and gradient norm, and whether it was skipped.

        Raises:
          OSError: writing an earlier checkpoint in the background has failed.
        """
        self.checkpoints.check()
        self.sampler.make_room()
        placed = self.prepare(mini_batches, hypers)
        every = zip(hypers, itertools.cycle(placed), strict=False)
        stats = []
        for hyper, micro in every:
            self.state, of_update = self.step.update(
                self.state, micro, hyper, self._base
            )
            stats.append(of_update)
        found: list[dict[str, Any]] = jax.device_get(stats)
        if self._reject is not None:
            tokens = [sum(int(b.loss_mask.sum()) for b in m) for m in mini_batches]
            for of_update, given in zip(found, itertools.cycle(tokens), strict=False):
                of_update["sum"]["rejected"] = given - of_update["sum"]["tokens"]
        return found

    def score(self, batch: Batch, hyper: Hyper) -> np.ndarray:
        """Computes the policy's log-probabilities of a micro-batch's tokens.

        Frees the sampler's memory first, so publish before you sample again.

        Args:
          batch: a micro-batch of NumPy arrays.
          hyper: scalars, of which the temperature is used.

        Returns:
          The log-probabilities, `[R, T]`.
        """
        self.sampler.make_room()
        placed = place(batch, self.step.rows)
        scored = self.step.score(self.policy, placed, hyper)
        return jax.device_get(self._gather(scored))

    def prepare(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[list[Batch]]:
        """Copies mini-batches to the devices and computes missing log-probabilities.

        Fills `old_logprobs` if the step has several updates, or if it has off-policy
        tokens that may be rejected. Fills `reference_logprobs` if there is a reference.

        Args:
          mini_batches, hypers: see `update`.

        Returns:
          The micro-batches of each mini-batch, sharded over the devices.
        """
        hyper = hypers[0]
        # With a single update the old policy is the current policy.
        scores = len(hypers) > 1
        off_policy = any(b.off_policy.any() for micro in mini_batches for b in micro)
        if self._reject is not None and off_policy:
            scores = False  # done here instead: rejection needs them on the host
            mini_batches = [
                self._reject(
                    [b.replace(old_logprobs=self.score(b, hyper)) for b in micro]
                )
                for micro in mini_batches
            ]
        reference = self.state.reference or self._reference

        def prepared(batch: Batch) -> Batch:
            own = (
                self._settings.old_logprobs == "sampler" and not batch.off_policy.any()
            )
            if scores and own:
                batch = batch.replace(old_logprobs=batch.sampler_logprobs)
            batch = place(batch, self.step.rows)
            if scores and not own:
                old = self.step.score(self.policy, batch, hyper)
                batch = batch.replace(old_logprobs=old)
            if reference:
                scored = self._score_reference(reference, batch, hyper)
                batch = batch.replace(reference_logprobs=scored)
            return batch

        return [[prepared(batch) for batch in micro] for micro in mini_batches]

    def publish(self, version: int) -> None:
        """Publishes the current parameters to the sampler as policy `version`.

        Every `objective.reset_every` versions, the reference is reset to the policy.

        Raises:
          NotFinite: a parameter is NaN or infinite; nothing is published.
          SamplerError, OSError: the sampler does not serve the new parameters.
        """
        check_finite(self.state.params, f"policy version {version} is not published")
        every = self._settings.reset_every if self.state.reference else 0
        if every and version and version % every == 0:
            reset = jax.tree.map(
                lambda old, new: jnp.array(new, old.dtype),
                self.state.reference,
                self.state.params,
            )
            self.state = self.state.replace(reference=reset)
        self.sampler.publish(self.policy, version)

    def save(
        self,
        step: int,
        loop: Mapping[str, Any],
        *,
        healthy: bool = True,
        score: float | None = None,
    ) -> None:
        """Starts to write a checkpoint; see `Checkpoints.save` for the arguments."""
        self.checkpoints.save(step, self.state, loop, healthy=healthy, score=score)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Restores the newest intact checkpoint, if any, and publishes the policy.

        Returns:
          The checkpoint's step and loop state; None without a checkpoint. See
          `Checkpoints.restore` and `publish` for errors.
        """
        abstract = abstract_state(self.state, self.step.shardings)
        restored = self.checkpoints.restore(abstract, make_room=self._make_room)
        if restored is None:
            self.publish(0)
            return None
        step, self.state, loop = restored
        self.publish(step)
        return step, loop

    def _make_room(self) -> None:
        # The old and the restored state of a large model do not fit in memory together.
        self.state = cast(TrainState, None)
        self.sampler.make_room()

    def export(self, folder: str, *, card: str, dtype: hf.DType) -> bool:
        """Writes the policy as a Hugging Face folder, with adapters merged.

        Adapters are also written alone, to the PEFT folder `adapter` next to `folder`.

        Args:
          folder: path of the folder, which is replaced if it exists.
          card: content of the folder's README.md.
          dtype: dtype of the exported weights.

        Returns:
          True if the policy was exported. False if the last update was skipped as not
          finite; an earlier export stays as it is.

        Raises:
          ValueError: a weight is not finite, before or after conversion to `dtype`.
          OSError: a file cannot be written.
        """
        if self.skipped[0]:
            return False
        params = self.policy
        with phase("export", folder):
            hf.save_folder(
                folder,
                params,
                self._config,
                assets=self._assets,
                dtype=dtype,
                card=card,
            )
            if self._base:
                peft_folder.save_folder(
                    pathlib.Path(folder).with_name("adapter"),
                    params,
                    self._config,
                    base=self._base_name,
                )
        return True

    def close(self) -> None:
        """Closes the sampler, then waits for the save in the background."""
        self.sampler.close()
        self.checkpoints.close()
