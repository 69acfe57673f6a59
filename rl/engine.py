"""All that touches devices. With several processes each runs the same calls."""

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
    """The policy and its sampler: sample, update, publish, save, restore, export.

    Arguments and results are plain host data, so that a leader can announce a call to
    the other processes (`rl.processes.joint`).

    Attributes:
      state: the train state.
      sampler: serves the policy of the last publish.
      checkpoints: of the run; every process has its own.
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
        """See `rl.setup.make_engine`.

        Args:
          base: frozen parameters; `{}`: all of them are trained.
          base_name: its path, or hub id, for those who load exported adapters.
          reference: parameters of the KL term; None: of no model, or those of `state`.
          score_reference: scores with them; None: as the policy is scored.
          settings: the section `objective` of the config.
          reject: removes tokens of a mini-batch, given old log-probabilities; None:
            keeps all.
        """
        self.step = step
        self.state, self._config = state, config
        self.sampler, self.checkpoints = sampler, checkpoints
        self._score_reference = score_reference or step.score
        self._assets, self._reference = assets, reference
        self._base, self._base_name = base, base_name
        self._settings, self._reject = settings, reject
        everywhere = NamedSharding(step.rows.mesh, PartitionSpec())
        self._gather = jax.jit(lambda x: x, out_shardings=everywhere)

    @property
    def policy(self) -> Params:
        """Return all parameters, the frozen ones among them."""
        return lora.join(self.state.params, self._base)

    @property
    def updates(self) -> int:
        """Optimizer applications so far."""
        return int(self.state.updates)

    @property
    def skipped(self) -> tuple[int, int]:
        """Updates skipped for what is not finite: in a row by now, and in all."""
        return int(self.state.skipped), int(self.state.skipped_in_all)

    @property
    def sample(self) -> Callable[..., list[list[Completion]]]:
        """See `rollout.types.Sampler.sample`."""
        return self.sampler.sample

    def update(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[dict[str, Any]]:
        """One step's updates.

        Args:
          mini_batches: micro-batches of each mini-batch, NumPy arrays.
          hypers: one per update; the mini-batches are gone through in order, over and
            over (`ppo_epochs`), until these are used up.

        Returns:
          Statistics of each update (see `rl.update.objective.Objective`).

        Raises:
          OSError: the checkpoint that was being written meanwhile has failed.
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
        """Log-probabilities of a micro-batch's tokens by the parameters, `[R, T]`.

        It has the memory that an update has: nothing is sampled until the next publish.

        Args:
          batch: NumPy arrays.
          hyper: of its temperature.
        """
        self.sampler.make_room()
        placed = place(batch, self.step.rows)
        scored = self.step.score(self.policy, placed, hyper)
        return jax.device_get(self._gather(scored))

    def prepare(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[list[Batch]]:
        """The arguments of `update` as its programs take them: placed, and scored."""
        hyper = hypers[0]
        # With a single update the policy is its own old policy.
        scores = len(hypers) > 1
        off_policy = any(b.off_policy.any() for micro in mini_batches for b in micro)
        if self._reject is not None and off_policy:
            scores = False  # rejection needs the scores already, on the host
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
        """Hands the current parameters to the sampler as `version`.

        Raises:
          NotFinite: they hold a NaN or an infinity; nothing is served.
        """
        check_finite(self.state.params, f"the policy of version {version}")
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
        """Begins to write a checkpoint; see `Checkpoints.save`, for errors too."""
        self.checkpoints.save(step, self.state, loop, healthy=healthy, score=score)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Goes back to the newest whole checkpoint, if any, and publishes the policy.

        Returns:
          The checkpoint's step and loop state; None where there is none. See
          `Checkpoints.restore` for errors.
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
        # Two states of a large model do not fit.
        self.state = cast(TrainState, None)
        self.sampler.make_room()

    def export(self, folder: str, *, card: str, dtype: hf.DType) -> bool:
        """Writes the policy as a Hugging Face folder, adapters merged.

        Adapters are also written alone: the PEFT folder `adapter` next to it.

        Args:
          folder: made here.
          card: its README.md.
          dtype: of its weights.

        Returns:
          Whether it did; not after updates that were not finite. What is there then is
          of an earlier end of the run.

        Raises:
          ValueError: a weight is not finite, in `dtype` either; nothing is left.
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
        self.sampler.close()
        self.checkpoints.close()
