"""Checkpoints: the train state by Orbax, the loop's own state beside it as JSON."""

import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp

from models import hf
from models.qwen2 import Params
from rl.step import TrainState

ASSETS = "assets"


class Checkpoints:
    """The checkpoints of one run, `folder/STEP`, written whole or not at all.

    Orbax writes to a temporary folder and renames it, so that a run killed while saving
    finds its last good checkpoint.
    """

    def __init__(self, folder: pathlib.Path, *, keep: int):
        """
        Args:
          folder: made when first written to.
          keep: newest checkpoints kept.
        """
        self._folder = folder.absolute()
        self._manager = ocp.CheckpointManager(
            self._folder,
            item_names=("state", "loop"),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, enable_async_checkpointing=False
            ),
        )

    def latest(self) -> int | None:
        """The newest complete step."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState, loop: Mapping[str, Any]) -> None:
        """Writes a checkpoint and waits for it.

        Raises:
          OSError: too little space; nothing was written.
        """
        if step == self.latest():
            return
        needed = sum(x.nbytes for x in jax.tree.leaves(state))
        free = shutil.disk_usage(self._folder).free
        if free < 1.05 * needed:
            raise OSError(
                f"{self._folder}: a checkpoint needs {needed / 1e9:.2f} GB,"
                f" {free / 1e9:.2f} GB are free"
            )
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), loop=ocp.args.JsonSave(dict(loop))
            ),
        )
        self._manager.wait_until_finished()

    def restore(
        self, step: int, abstract: TrainState
    ) -> tuple[TrainState, dict[str, Any]]:
        """Reads a checkpoint onto the devices that `abstract` names."""
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), loop=ocp.args.JsonRestore()
            ),
        )
        return restored["state"], restored["loop"]

    def close(self) -> None:
        self._manager.close()


def abstract_state(state_shapes: TrainState, shardings: TrainState) -> TrainState:
    """Shapes with shardings, as `Checkpoints.restore` takes them."""
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        state_shapes,
        shardings,
    )


def save_params(
    folder: pathlib.Path, params: Params, assets: str | pathlib.Path
) -> None:
    """A checkpoint of parameters alone, with what a Hugging Face folder needs besides.

    Raises:
      ValueError: the folder exists.
    """
    folder = folder.absolute()
    if folder.exists():
        raise ValueError(f"{folder}: exists already")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "params", params)
    hf.copy_assets(assets, folder / ASSETS)


def load_params(folder: pathlib.Path, abstract: Params) -> Params:
    """Reads what `save_params` wrote, onto the devices that `abstract` names."""
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(folder.absolute() / "params", abstract)


def load_run_params(
    checkpoints: pathlib.Path, step: int | None, abstract: Params
) -> tuple[int, Params]:
    """Reads only the parameters of a run's checkpoint, the newest by default.

    Raises:
      ValueError: there is no such checkpoint; the message lists those there are.
    """
    steps = sorted(
        int(p.name) for p in checkpoints.glob("*") if p.is_dir() and p.name.isdigit()
    )
    if not steps:
        raise ValueError(f"{checkpoints}: holds no checkpoint")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise ValueError(f"{checkpoints}: no checkpoint of step {step}; there: {steps}")
    restore_args = jax.tree.map(
        lambda x: ocp.ArrayRestoreArgs(sharding=x.sharding, dtype=x.dtype), abstract
    )
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(
            checkpoints.absolute() / str(step) / "state",
            args=ocp.args.PyTreeRestore(
                item={"params": abstract},
                restore_args={"params": restore_args},
                partial_restore=True,
            ),
        )
    return step, restored["params"]
