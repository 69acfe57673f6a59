"""All that touches devices. With several processes each runs the same calls."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from models import hf
from models.config import Qwen2Config
from rl.checkpoint import Checkpoints, abstract_state
from rl.step import Step, TrainState
from rl.types import Batch, Hyper
from rollout.types import Completion, OnFinished, Sampler, SamplingParams


class Engine:
    """The policy and its sampler: sample, update, publish, save, restore, export.

    Arguments and results are plain host data, so that a leader can announce a call to
    the other processes (`rl.multihost`).
    """

    def __init__(
        self,
        *,
        config: Qwen2Config,
        step: Step,
        state: TrainState,
        sampler: Sampler,
        checkpoints: Checkpoints,
        assets: pathlib.Path,
    ):
        self._config, self._step, self._state = config, step, state
        self._sampler, self._checkpoints = sampler, checkpoints
        self._assets = assets

    @property
    def updates(self) -> int:
        """Optimizer applications so far."""
        return int(self._state.updates)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """See `rollout.types.Sampler.sample`."""
        return self._sampler.sample(prompts, params, seed=seed, on_finished=on_finished)

    def update(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[dict[str, Any]]:
        """One step's updates.

        Args:
          mini_batches: micro-batches of each mini-batch, NumPy arrays.
          hypers: one per update; the mini-batches are gone through in order, over and
            over (`ppo_epochs`), until these are used up.

        Returns:
          Statistics of each update (see `rl.objective.batch_loss`).
        """
        placed = [[place(b, self._step.rows) for b in micro] for micro in mini_batches]
        if len(hypers) > 1:
            # With a single update the policy is its own old policy.
            placed = [[self._scored(b) for b in micro] for micro in placed]
        stats = []
        for hyper, micro in zip(hypers, itertools.cycle(placed), strict=False):
            self._state, of_update = self._step.update(self._state, micro, hyper)
            stats.append(of_update)
        return jax.device_get(stats)

    def _scored(self, batch: Batch) -> Batch:
        return batch.replace(old_logprobs=self._step.score(self._state.params, batch))

    def publish(self, version: int) -> None:
        """Hands the current parameters to the sampler as `version`."""
        self._sampler.publish(self._state.params, version)

    def sampler_metrics(self) -> dict[str, float]:
        """The sampler's own figures, such as what the last publish cost."""
        return self._sampler.metrics()

    def save(self, step: int, loop: Mapping[str, Any]) -> None:
        """Writes a checkpoint; see `Checkpoints.save` for errors."""
        self._checkpoints.save(step, self._state, loop)

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Goes back to the newest checkpoint, if any, and publishes the policy.

        Returns:
          The checkpoint's step and loop state; None where there is none.
        """
        step = self._checkpoints.latest()
        if step is None:
            self.publish(0)
            return None
        abstract = abstract_state(self._state, self._step.shardings)
        self._state, loop = self._checkpoints.restore(step, abstract)
        self.publish(step)
        return step, loop

    def export(self, folder: str, dtype: str) -> None:
        """Writes the policy as a Hugging Face folder."""
        hf.save_folder(
            folder, self._state.params, self._config, assets=self._assets, dtype=dtype
        )

    def close(self) -> None:
        self._sampler.close()
        self._checkpoints.close()


def place(batch: Batch, rows: NamedSharding) -> Batch:
    """Puts host arrays on the devices, each process its own part."""
    return jax.tree.map(
        lambda x: jax.make_array_from_callback(x.shape, rows, lambda index: x[index]),
        batch,
    )


def make_hyper(
    *, learning_rate: float, eps_low: float, eps_high: float, first: bool
) -> Hyper:
    """Host scalars of fixed dtypes, so that no value makes a new program."""
    return Hyper(
        learning_rate=np.float32(learning_rate),
        eps_low=np.float32(eps_low),
        eps_high=np.float32(eps_high),
        first=np.bool_(first),
    )
