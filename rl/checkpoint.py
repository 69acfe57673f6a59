"""Checkpoints that prove what they hold: `WORKDIR/checkpoints/STEP/`.

    state/      the train state, by Orbax, on any mesh
    loop.json   the loop's own state
    proof.json  what all of it must be, see `rl.workdir.proof`

A folder gets its name when all of it, proof included, is on the disk. What does not
agree with its proof is never loaded: it is named, and the one before it is taken.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from configs.schema import Count
from models import hf
from models.qwen2 import Params
from rl.files import named, publish, sync
from rl.processes.stopping import one_line
from rl.update.examine import NotFinite, examine
from rl.update.step import TrainState
from rl.workdir.proof import (
    LOOP,
    PROOF,
    Damaged,
    Proof,
    check_shapes,
    check_tensors,
    loop_text,
    proof_text,
    read_loop,
    read_proof,
    tensors_of,
    verify,
    write,
    write_proof,
)

ASSETS = "assets"
OnDamage = Literal["fallback", "stop"]
DAMAGED = ".damaged"

_STATE = "state"
# What a save is said to need before any has been timed: one disk, or a slow network.
SAVED_BYTES_PER_SECOND = 1e9


class Checkpoints:
    """The checkpoints of one run.

    With several processes all of them make one and make the same calls; the first one
    judges, names and removes.
    """

    def __init__(
        self, folder: pathlib.Path, *, keep: Count, on_damage: OnDamage = "fallback"
    ):
        """
        Args:
          folder: made when first written to.
          keep: newest checkpoints kept; beside them the newest healthy one and the one
            with the best score.
          on_damage: "fallback" goes back to the newest whole checkpoint and sets those
            that are damaged aside, "stop" ends the run.
        """
        if keep < 1:
            raise ValueError(f"checkpoint.keep={keep}: must be at least 1")
        self._folder, self._keep, self._on_damage = folder.absolute(), keep, on_damage
        self._checkpointer = ocp.StandardCheckpointer()
        self._background = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._pending: tuple[int, concurrent.futures.Future] | None = None

    def latest(self) -> int | None:
        """The newest complete step."""
        return max(steps_in(self._folder), default=None)

    def save(
        self,
        step: int,
        state: TrainState,
        loop: Mapping[str, Any],
        *,
        healthy: bool = True,
        score: float | None = None,
    ) -> None:
        """Begins to write a checkpoint; returns when the state is copied to the host.

        A step that is there already is not written again.

        Args:
          step: steps done.
          state: may be donated as soon as this returns.
          loop: as JSON.
          healthy, score: see `Proof`.

        Raises:
          NotFinite: the state holds a NaN or an infinity; nothing was written.
          OSError: too little space, and nothing was written; or the save before this
            one failed.
        """
        self.wait()
        # Another process may see the folder of a moment ago, and examining is joint.
        if _as_first(step in steps_in(self._folder)):
            return
        began = time.time()
        findings = examine(state)
        for name, finding in findings.items():
            if finding.nonfinite:
                raise NotFinite(
                    f"step {step} is not saved: {finding.nonfinite:,} entries of {name}"
                    " are not finite"
                )
        partial = self._folder / f".{step}.partial"
        if jax.process_index() == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            for leftover in self._folder.glob(".*.partial"):  # of what was cut short
                _discard(leftover)
            self._check_room(sum(x.nbytes for x in jax.tree.leaves(state)))
            partial.mkdir()
        # As it is now: the loop goes on while this is written.
        text = loop_text(step, loop)
        header = dict(
            step=step,
            updates=int(state.updates),
            healthy=healthy,
            score=score,
            began=began,
            tensors=tensors_of(state, findings),
        )
        self._checkpointer.save(partial / _STATE, state)
        self._pending = (
            step,
            self._background.submit(self._commit, partial, text, header),
        )

    def _check_room(self, needed: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < 1.05 * needed:
            raise OSError(
                f"{self._folder}: a checkpoint needs {needed / 1e9:.2f} GB,"
                f" {free / 1e9:.2f} GB are free"
            )

    def _commit(self, partial: pathlib.Path, loop: str, header: dict[str, Any]) -> None:
        try:
            self._checkpointer.wait_until_finished()
            if jax.process_index() != 0:
                return
            write(partial / LOOP, loop)
            write_proof(partial, **header)
            partial.rename(self._folder / str(header["step"]))
            sync(self._folder)
        except BaseException:
            # What fills the disk up goes; what Orbax still writes goes in `save`.
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self._rotate()

    def _rotate(self) -> None:
        proofs = proofs_in(self._folder)
        for step in proofs.keys() - kept_steps(proofs, self._keep).keys():
            self._forget(step)

    def _forget(self, step: int) -> None:
        # Its name first: a kill leaves a checkpoint whole or not there.
        folder = self._folder / str(step)
        gone = self._folder / f".{step}.partial"
        try:
            folder.rename(gone)
        except OSError as error:
            print(f"WARNING: {folder}: not removed ({error.strerror})", flush=True)
        else:
            _discard(gone)

    def record_score(self, step: int, score: float) -> None:
        """Adds what was evaluated only after a step had been saved.

        Raises:
          OSError: it cannot be written; or the save before has failed.
        """
        self.wait()
        if jax.process_index() == 0:
            folder = self._folder / str(step)
            proof = dataclasses.replace(read_proof(folder), score=score)
            # Beside the folder, in which nothing may be that the proof does not name.
            partial = self._folder / f".{step}.proof.partial"
            with named(partial):
                partial.write_text(proof_text(proof), encoding="utf-8")
            publish(partial, folder / PROOF)
            self._rotate()

    def finish(self) -> None:
        """Waits for the save in the background; `wait` tells how that has ended."""
        if pending := self._pending:
            concurrent.futures.wait([pending[1]])

    def check(self) -> None:
        """Raises OSError if a save in the background has failed; waits for nothing."""
        if self._pending and self._pending[1].done():
            self.wait()

    def wait(self) -> None:
        """Waits for the save in the background.

        Raises:
          OSError: it failed; earlier checkpoints stay as they were.
        """
        if self._pending is None:
            return
        (step, future), self._pending = self._pending, None
        try:
            future.result()
        except Exception as error:  # Orbax's, tensorstore's and the system's own
            reason = one_line(error)[:300]
            raise OSError(
                f"{self._folder}: the checkpoint of step {step} was not written"
                f" ({reason}); the newest is that of step {self.latest()}"
            ) from None

    def restore(
        self, abstract: TrainState, *, make_room: Callable[[], None] = lambda: None
    ) -> tuple[int, TrainState, dict[str, Any]] | None:
        """Reads the newest whole checkpoint onto the devices that `abstract` names.

        Args:
          abstract: see `abstract_state`.
          make_room: called before a state is read, and not where there is none: frees
            what stands where it goes.

        Returns:
          Its step, state and loop state; None where there is none at all.

        Raises:
          Damaged: under "stop"; or none is whole.
          ValueError: a checkpoint is of another model or optimizer.
        """
        self.wait()
        damaged: dict[int, str] = {}
        while (step := self._newest_whole(damaged)) is not None:
            make_room()
            try:
                state, loop = self._read(step, abstract)
            except Damaged as damage:
                self._note(damaged, step, damage)
                continue
            if jax.process_index() == 0:
                self._set_aside(damaged, step)
            return step, state, loop
        return None

    def _newest_whole(self, damaged: dict[int, str]) -> int | None:
        """By the files alone; what the first process finds holds for all."""
        found = -1
        if jax.process_index() == 0:
            for step in sorted(steps_in(self._folder) - damaged.keys(), reverse=True):
                try:
                    verify(self._folder / str(step))
                    found = step
                    break
                except Damaged as damage:
                    self._note(damaged, step, damage)
            if found < 0 and damaged:
                raise Damaged(
                    f"{self._folder}: none of {len(damaged)} checkpoints is whole: "
                    + "; ".join(damaged.values())
                )
        found = _as_first(found)
        return None if found < 0 else found

    def _note(self, damaged: dict[int, str], step: int, damage: Damaged) -> None:
        if self._on_damage == "stop":
            raise Damaged(f"{damage} (checkpoint.on_damage='stop')")
        damaged[step] = str(damage)

    def _set_aside(self, damaged: Mapping[int, str], taken: int) -> None:
        for step, damage in damaged.items():
            folder = self._folder / str(step)
            aside = folder.with_name(folder.name + DAMAGED)
            if os.path.lexists(aside):  # of an earlier damage
                remove(aside)
            folder.rename(aside)
            print(
                f"WARNING: {damage}; set aside as {aside.name}, step {taken} is taken",
                flush=True,
            )

    def _read(
        self, step: int, abstract: TrainState
    ) -> tuple[TrainState, dict[str, Any]]:
        folder = self._folder / str(step)
        proof = read_proof(folder)
        check_shapes(folder, proof.tensors, abstract)
        try:
            state = self._checkpointer.restore(folder / _STATE, abstract)
        except Exception as error:
            raise Damaged(
                f"{folder}: Orbax cannot read it: {one_line(error)[:300]}"
            ) from None
        check_tensors(folder, proof.tensors, state)
        if int(state.updates) != proof.updates:
            raise Damaged(
                f"{folder}: {int(state.updates)} updates, its proof says"
                f" {proof.updates}"
            )
        return state, read_loop(folder, step)

    def close(self) -> None:
        """Waits for the save in the background; see `wait` for errors."""
        try:
            self.wait()
        finally:
            self._background.shutdown()
            self._checkpointer.close()


def _as_first(value: int) -> int:
    """What the first process says holds for all."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def remove(path: pathlib.Path) -> None:
    """Removes a file or a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _discard(path: pathlib.Path) -> None:
    """Removes what nobody needs; where that fails, a later save tries again."""
    try:
        remove(path)
    except OSError as error:
        print(f"WARNING: {path}: not removed ({error.strerror})", flush=True)


# -- what is kept, and what it costs -------------------------------------------------


def steps_in(folder: pathlib.Path) -> set[int]:
    """Steps whose checkpoints are there under their names, whole or not."""
    return {
        int(p.name)
        for p in folder.glob("*")
        if p.name.isascii() and p.name.isdigit() and str(int(p.name)) == p.name
    }


def proofs_in(folder: pathlib.Path) -> dict[int, Proof]:
    """Proofs by step, of the checkpoints whose proof can be read."""
    proofs = {}
    for step in sorted(steps_in(folder)):
        try:
            proofs[step] = read_proof(folder / str(step))
        except Damaged:
            continue
    return proofs


def kept_steps(proofs: Mapping[int, Proof], keep: int) -> dict[int, list[str]]:
    """What a rotation leaves, with the reasons: newest, healthy, best."""
    reasons = {step: ["newest"] for step in sorted(proofs)[-keep:]}
    healthy = [step for step, proof in proofs.items() if proof.healthy]
    if healthy:
        reasons.setdefault(max(healthy), []).append("healthy")
    scored = [(p.score, step) for step, p in proofs.items() if p.score is not None]
    if scored:
        reasons.setdefault(max(scored)[1], []).append("best")
    return reasons


def state_bytes(params: Params, optimizer: optax.GradientTransformation) -> int:
    """Bytes of a checkpoint's tensors.

    Args:
      params: arrays or shapes with dtypes.
      optimizer: whose state is saved too.
    """
    leaves = jax.tree.leaves((params, jax.eval_shape(optimizer.init, params)))
    return sum(x.size * x.dtype.itemsize for x in leaves)


def describe_cost(nbytes: int, *, keep: int, folder: pathlib.Path) -> str:
    """What checkpoints of `nbytes` need of the disk, and a stop of its grace period.

    By the rate of the newest save in `folder`, or at 1 GB/s where there is none.
    """
    rate, source = SAVED_BYTES_PER_SECOND, "at 1 GB/s"
    if proofs := proofs_in(folder):
        newest = proofs[max(proofs)]
        rate = newest.bytes / max(newest.seconds, 1e-3)
        source = f"at the {rate / 1e9:.2g} GB/s of step {newest.step}"
    # The newest, the last healthy one, the best one, the one being written, and that of
    # a dump.
    most = (keep + 4) * nbytes
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    return (
        f"{nbytes / 1e9:,.2f} GB each, {keep} newest kept, {most / 1e9:,.2f} GB at most"
        f" ({free / 1e9:,.2f} GB free); a stop needs {nbytes / rate:,.0f} s to save,"
        f" {source}"
    )


# -- parameters alone ----------------------------------------------------------------


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
    folder, began = folder.absolute(), time.time()
    if folder.exists():
        raise ValueError(f"{folder}: exists already")
    tensors = tensors_of(params, examine(params))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "params", params)
    hf.copy_assets(assets, folder / ASSETS)
    write_proof(folder, tensors=tensors, began=began)


def load_params(folder: pathlib.Path, abstract: Params) -> Params:
    """Reads what `save_params` wrote, onto the devices that `abstract` names.

    Raises:
      Damaged: it is not what was written.
    """
    folder = folder.absolute()
    proof = verify(folder)
    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore(folder / "params", abstract)
    check_tensors(folder, proof.tensors, params)
    return params


def load_run_params(
    checkpoints: pathlib.Path, step: int | None, abstract: Params
) -> tuple[int, Params]:
    """Reads only the parameters of a run's checkpoint, the newest by default.

    Raises:
      ValueError: there is no such checkpoint, the message lists those there are; or it
        is damaged.
    """
    steps = sorted(steps_in(checkpoints))
    if not steps:
        raise ValueError(f"{checkpoints}: holds no checkpoint")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise ValueError(f"{checkpoints}: no checkpoint of step {step}; there: {steps}")
    folder = checkpoints.absolute() / str(step)
    proof = verify(folder)
    restore_args = jax.tree.map(
        lambda x: ocp.ArrayRestoreArgs(sharding=x.sharding, dtype=x.dtype), abstract
    )
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(
            folder / _STATE,
            args=ocp.args.PyTreeRestore(
                item={"params": abstract},
                restore_args={"params": restore_args},
                partial_restore=True,
            ),
        )
    check_tensors(folder, proof.tensors, {"params": restored["params"]})
    return step, restored["params"]
