"""Checkpoints of a run, `WORKDIR/checkpoints/STEP/`, by Orbax's CheckpointManager.

    state/      the train state, on any mesh
    loop/       the loop's own state, as JSON
    checksums/  of both, see `rl.checksums`

The three are one save: a step's folder gets its name when all of it is on the disk. A
checkpoint that does not match its checksums is never loaded: it is set aside, and the
one before it is used.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy

from models.decoder import Params
from rl import checksums
from rl.checksums import CorruptCheckpointError, Record
from rl.processes.stopping import one_line
from rl.update.examine import check_finite
from rl.update.step import TrainState

ASSETS = "assets"
DAMAGED = ".damaged"
_DELETED = ".deleted"
_LEFTOVER_SECONDS = 10.0


class Checkpoints:
    """The checkpoints of one run.

    With several processes all of them make one and make the same calls; the first one
    checks, renames and removes.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        keep: int,
        base: Mapping[str, str] | None = None,
    ):
        """
        Args:
          folder: made by the first save.
          keep: newest checkpoints that are retained; the newest healthy one and the one
            with the best score are as well.
          base: of adapters, see `checksums.describe_base`; None: all is trained.
        """
        self._base = base or {}
        self._folder, self._keep = folder.absolute(), keep
        self._records: dict[int, Record] = {}
        self._manager: ocp.CheckpointManager | None = None
        self._background = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._pending: tuple[int, concurrent.futures.Future] | None = None

    def latest(self) -> int | None:
        """Return the newest complete step."""
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
        """Begin to write a checkpoint; returns when the state is copied to the host.

        A step that is there already is not written again.

        Args:
          step: steps done.
          state: may be donated as soon as this returns.
          loop: as JSON; may change as soon as this returns.
          healthy, score: see `Record`.

        Raises:
          NotFinite: the state holds a NaN or an infinity; nothing was written.
          OSError: too little space, and nothing was written; or the save before this
            one failed.
        """
        self.wait()
        # Another process may see the folder as it was, and what follows is joint.
        if _from_first(step in steps_in(self._folder)):
            return
        check_finite(state, f"step {step} is not saved")
        if jax.process_index() == 0:
            self._check_space(sum(x.nbytes for x in jax.tree.leaves(state)))
        loop = json.loads(json.dumps(loop))
        manager = self._open()
        self._records[step] = record = Record(
            step=step,
            updates=int(state.updates),
            healthy=healthy,
            score=score,
            loop=checksums.hash_json(loop),
            tensors=checksums.tensors_of(state),
            base=self._base,
        )
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            loop=ocp.args.JsonSave(loop),
            checksums=ocp.args.JsonSave(dataclasses.asdict(record)),
        )
        try:
            manager.save(step, args=items, force=True)
        except Exception as error:
            raise self._failed(step, error) from None
        self._pending = step, self._background.submit(self._finish, manager, step)

    def _open(self) -> ocp.CheckpointManager:
        if self._manager is None:
            self._records = records_in(self._folder)
            self._manager = ocp.CheckpointManager(
                self._folder,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=_Retained(self._records, self._keep),
                    cleanup_tmp_directories=True,
                    # A folder that cannot be made is then an error at once, and not
                    # after five minutes.
                    async_options=ocp.AsyncOptions(
                        create_directories_asynchronously=False
                    ),
                    # A step that is removed loses its name at once, whatever happens.
                    todelete_subdir=_DELETED,
                    lightweight_initialize=True,
                    save_root_metadata=False,
                ),
            )
        # Each thread receives the error of a failed removal once; `_finish` printed it.
        with contextlib.suppress(Exception):
            self._manager.wait_until_finished()
        return self._manager

    def _failed(self, step: int, error: Exception) -> OSError:
        """Start over after a failed save, some of whose writes may not have ended."""
        self._records.pop(step, None)
        if self._manager is not None:
            with contextlib.suppress(Exception):  # the same one again
                self._manager.close()
            self._manager = None
        if jax.process_index() == 0:
            # The writes make their folder again: remove it until it stays away.
            until = time.monotonic() + _LEFTOVER_SECONDS
            while left := list(self._folder.glob(f"{step}.*tmp*")):
                for folder in left:
                    shutil.rmtree(folder, ignore_errors=True)
                if time.monotonic() > until:
                    break
                time.sleep(0.5)
        return OSError(
            f"{self._folder}: the checkpoint of step {step} was not written"
            f" ({one_line(error)[:300]}); the newest is that of step {self.latest()}"
        )

    def _check_space(self, needed: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if free < 1.05 * needed:
            raise OSError(
                f"{self._folder}: a checkpoint needs {needed / 1e9:.2f} GB,"
                f" {free / 1e9:.2f} GB are free"
            )

    def _finish(self, manager: ocp.CheckpointManager, step: int) -> None:
        folder = self._folder / str(step)
        try:
            manager.wait_until_finished()
        except Exception as error:
            if not folder.is_dir():
                raise
            print(f"WARNING: an old checkpoint stays: {one_line(error)}", flush=True)
        if jax.process_index() == 0:
            checksums.write_sums(folder)
            _discard(self._folder / _DELETED)

    def record_score(self, step: int, score: float) -> None:
        """Add the result of an evaluation that ended after the step had been saved.

        Raises:
          OSError: it cannot be written; or the save before has failed.
        """
        self.wait()
        if jax.process_index() == 0:
            checksums.write_score(self._folder / str(step), score)
            self._records |= records_in(self._folder)

    def finish(self) -> None:
        """Wait for the save in the background; `wait` reports how it ended."""
        if pending := self._pending:
            concurrent.futures.wait([pending[1]])

    def check(self) -> None:
        """Raise OSError if a save in the background has failed; does not wait."""
        if self._pending and self._pending[1].done():
            self.wait()

    def wait(self) -> None:
        """Wait for the save in the background.

        Raises:
          OSError: it failed; earlier checkpoints stay as they were.
        """
        if self._pending is None:
            return
        (step, future), self._pending = self._pending, None
        try:
            future.result()
        except Exception as error:  # Orbax's, tensorstore's and the system's own
            raise self._failed(step, error) from None

    def restore(
        self, abstract: TrainState, *, make_room: Callable[[], None] = lambda: None
    ) -> tuple[int, TrainState, dict[str, Any]] | None:
        """Read the newest intact checkpoint onto the devices that `abstract` names.

        Those that are corrupt are set aside, with a warning.

        Args:
          abstract: see `abstract_state`.
          make_room: called before a state is read, if there is one: frees the memory
            that it needs.

        Returns:
          Its step, state and loop state; None if there is no checkpoint.

        Raises:
          CorruptCheckpointError: none of the checkpoints is intact.
          ValueError: a checkpoint is of another model, base or optimizer.
        """
        self.wait()
        corrupt: dict[int, str] = {}
        while (step := self._newest_intact(corrupt)) is not None:
            make_room()
            folder = self._folder / str(step)
            try:
                record = checksums.read_record(folder)
                checksums.check_base(folder, record, self._base)
                state = _read_state(folder, record, abstract)
                loop = checksums.read_loop(folder, record)
            except CorruptCheckpointError as error:
                corrupt[step] = str(error)
                continue
            if jax.process_index() == 0:
                self._set_aside(corrupt, step)
                if not (folder / checksums.SUMS).exists():  # a kill came first
                    checksums.write_sums(folder)
            return step, state, loop
        return None

    def _newest_intact(self, corrupt: dict[int, str]) -> int | None:
        """Judge by the files alone; the first process decides for all."""
        found = -1
        if jax.process_index() == 0:
            for step in sorted(steps_in(self._folder) - corrupt.keys(), reverse=True):
                try:
                    checksums.verify(self._folder / str(step))
                    found = step
                    break
                except CorruptCheckpointError as error:
                    corrupt[step] = str(error)
            if found < 0 and corrupt:
                raise CorruptCheckpointError(
                    f"{self._folder}: none of {len(corrupt)} checkpoints is intact: "
                    + "; ".join(corrupt.values())
                )
        found = _from_first(found)
        return None if found < 0 else found

    def _set_aside(self, corrupt: Mapping[int, str], used: int) -> None:
        for step, error in corrupt.items():
            folder = self._folder / str(step)
            aside = folder.with_name(folder.name + DAMAGED)
            if os.path.lexists(aside):  # of an earlier time
                remove(aside)
            folder.rename(aside)
            print(
                f"WARNING: {error}; set aside as {aside.name}, using step {used}",
                flush=True,
            )

    def close(self) -> None:
        """Wait for the save in the background; see `wait` for errors."""
        try:
            self.wait()
        finally:
            self._background.shutdown()
            if self._manager is not None:
                self._open().close()


class _Retained(preservation_policy.PreservationPolicy):
    """Retains the newest, the last healthy and the best checkpoints."""

    def __init__(self, records: Mapping[int, Record], keep: int):
        self._records, self._keep = records, keep

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any
    ) -> Sequence[bool]:
        retained = retained_steps(self._records, self._keep)
        return [checkpoint.step in retained for checkpoint in checkpoints]


def retained_steps(records: Mapping[int, Record], keep: int) -> dict[int, list[str]]:
    """Return the steps that a rotation leaves, each with the reasons."""
    reasons = {step: ["newest"] for step in sorted(records)[-keep:]}
    healthy = [step for step, record in records.items() if record.healthy]
    if healthy:
        reasons.setdefault(max(healthy), []).append("healthy")
    scored = [(r.score, step) for step, r in records.items() if r.score is not None]
    if scored:
        reasons.setdefault(max(scored)[1], []).append("best")
    return reasons


def steps_in(folder: pathlib.Path) -> set[int]:
    """Return the steps whose checkpoints are complete, intact or not."""
    return {
        int(p.name)
        for p in folder.glob("*")
        if p.name.isascii() and p.name.isdigit() and str(int(p.name)) == p.name
    }


def records_in(folder: pathlib.Path) -> dict[int, Record]:
    """Return the records by step, of the checkpoints whose record can be read."""
    records = {}
    for step in sorted(steps_in(folder)):
        with contextlib.suppress(CorruptCheckpointError):
            records[step] = checksums.read_record(folder / str(step))
    return records


def abstract_state(state_shapes: TrainState, shardings: TrainState) -> TrainState:
    """Return shapes with shardings, as `Checkpoints.restore` takes them."""
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        state_shapes,
        shardings,
    )


def _read_state(
    folder: pathlib.Path, record: Record, abstract: TrainState
) -> TrainState:
    checksums.check_shapes(folder, record.tensors, abstract)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            state = checkpointer.restore(folder / "state", abstract)
    except Exception as error:
        reason = one_line(error)[:300]
        raise CorruptCheckpointError(
            f"{folder}: Orbax cannot read it: {reason}"
        ) from None
    checksums.check_tensors(folder, record.tensors, state)
    return state


def _from_first(value: int) -> int:
    """Return the value of the first process, in all of them."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def remove(path: pathlib.Path) -> None:
    """Remove a file or a link, or a folder with all its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _discard(path: pathlib.Path) -> None:
    """Remove a path; if that fails, a later save tries again."""
    try:
        remove(path)
    except OSError as error:
        print(f"WARNING: {path}: not removed ({error.strerror})", flush=True)


def state_bytes(params: Params, optimizer: optax.GradientTransformation) -> int:
    """Return the bytes of a checkpoint's tensors.

    Args:
      params: arrays or shapes with dtypes.
      optimizer: whose state is saved too.
    """
    leaves = jax.tree.leaves((params, jax.eval_shape(optimizer.init, params)))
    return sum(x.size * x.dtype.itemsize for x in leaves)


def describe_cost(nbytes: int, *, keep: int, folder: pathlib.Path) -> str:
    """Describe the disk space of checkpoints of `nbytes`, and the time of a save."""
    # The newest, the last healthy one, the best one, the one being written, and that of
    # a dump.
    most = (keep + 4) * nbytes
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    return (
        f"{nbytes / 1e9:,.2f} GB each, {keep} newest kept, {most / 1e9:,.2f} GB at most"
        f" ({free / 1e9:,.2f} GB free); a stop needs {nbytes / 1e9:,.0f} s to save,"
        " at 1 GB/s"
    )


def size_of(folder: pathlib.Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def load_run_params(
    checkpoints: pathlib.Path, step: int | None, abstract: Params
) -> tuple[int, Params]:
    """Read only the parameters of a run's checkpoint, the newest by default.

    Raises:
      ValueError: the checkpoint does not exist, and the message lists those that do; or
        it is corrupt.
    """
    steps = sorted(steps_in(checkpoints))
    if not steps:
        raise ValueError(f"{checkpoints}: holds no checkpoint")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise ValueError(f"{checkpoints}: no checkpoint of step {step}; there: {steps}")
    folder = checkpoints.absolute() / str(step)
    checksums.verify(folder)
    record = checksums.read_record(folder)
    restore_args = jax.tree.map(
        lambda x: ocp.ArrayRestoreArgs(sharding=x.sharding, dtype=x.dtype), abstract
    )
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(
            folder / "state",
            args=ocp.args.PyTreeRestore(
                item={"params": abstract},
                restore_args={"params": restore_args},
                partial_restore=True,
            ),
        )
    checksums.check_tensors(folder, record.tensors, {"params": restored["params"]})
    return step, restored["params"]
