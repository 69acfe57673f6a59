"""Saves and restores checkpoints with Orbax, in `WORKDIR/checkpoints/STEP/`.

    state/      the train state, which can be restored on any mesh
    loop/       the state of the training loop, as JSON
    checksums/  the `rl.checksums.Record`, with checksums of the tensors
    SHA256SUMS  checksums of all files

A step's folder gets its final name when all of these are on the disk. A run resumes
from the newest intact checkpoint and renames newer, corrupt ones to `STEP.damaged`.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.path import atomicity

from models.decoder import Params
from rl import checksums
from rl.checksums import CorruptCheckpointError, Record, steps_in
from rl.errors import one_line
from rl.processes.devices import is_out_of_memory
from rl.processes.stopping import Stopped
from rl.update.examine import by_path, check_finite
from rl.update.step import TrainState

ASSETS = "assets"
DAMAGED = ".damaged"
_DELETED = ".deleted"
UNFINISHED = "*.orbax-checkpoint-tmp*"  # folders of saves that failed or were killed


class _StepFolder(atomicity.AtomicRenameTemporaryPath):
    """Writes `SHA256SUMS` before a step's folder gets its final name."""

    async def finalize(self) -> None:
        if store := self._checkpoint_metadata_store:  # None for the parts of a step
            store.wait_until_finished()
            checksums.write_sums(pathlib.Path(self.get()))
        self.get().rename(self.get_final())


class Checkpoints:
    """Saves and restores the checkpoints of one run, and deletes old ones.

    In a run of several processes, all call `save`, `restore` and `close` together.
    `base` is the result of `checksums.describe_base`, or None without adapters.
    """

    def __init__(
        self, folder: pathlib.Path, *, keep: int, base: Mapping[str, str] | None = None
    ):
        self._base = base or {}
        self._folder, self._keep = folder.absolute(), keep
        self._records: dict[int, Record] = {}
        self._manager: ocp.CheckpointManager | None = None
        self._saving: int | None = None  # step of the save in the background

    def latest(self) -> int | None:
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
        """Copies the state to the host and starts to write a checkpoint from the copy.

        An existing checkpoint of the step is not written again. For `step`, `healthy`
        and `score` see `Record`.

        Raises:
          NotFinite: the state holds a NaN or an infinity; nothing was written.
          OSError: the disk has too little space, or this or the previous save failed.
        """
        self.wait()
        # Process 0 decides: another process may see an old state of the file system.
        if _from_first(step in steps_in(self._folder)):
            return
        found = check_finite(state, f"the checkpoint of step {step} is not saved")
        if jax.process_index() == 0:
            self._remove_unfinished()
            self._check_space(sum(x.nbytes for x in jax.tree.leaves(state)))
        self._manager = self._manager or self._open()
        loop = json.loads(json.dumps(loop))  # a copy, since it is written later
        self._records[step] = record = Record(
            step=step,
            updates=int(state.updates),
            healthy=healthy,
            score=score,
            loop=checksums.hash_json(loop),
            tensors=checksums.tensors_of(state, found),
            base=self._base,
        )
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            loop=ocp.args.JsonSave(loop),
            checksums=ocp.args.JsonSave(dataclasses.asdict(record)),
        )
        try:
            self._manager.save(step, args=items, force=True)
        except Exception as error:
            raise self._failed(step, error) from None
        self._saving = step

    def _open(self) -> ocp.CheckpointManager:
        self._records = records_in(self._folder)
        return ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=self,
                async_options=ocp.AsyncOptions(
                    # Twice the default, as process 0 also hashes the files.
                    timeout_secs=2 * 1200,
                    # Otherwise the error of a folder that cannot be created is raised
                    # only after five minutes.
                    create_directories_asynchronously=False,
                ),
                temporary_path_class=_StepFolder,
                # Move a step's folder here before it is deleted, so that no partly
                # deleted checkpoint remains if the process is killed.
                todelete_subdir=_DELETED,
                lightweight_initialize=True,
                save_root_metadata=False,
            ),
        )

    def should_preserve(self, checkpoints: Any, *, context: Any) -> Sequence[bool]:
        # A method of Orbax's `PreservationPolicy`, which Orbax calls.
        retained = retained_steps(self._records, self._keep)
        return [checkpoint.step in retained for checkpoint in checkpoints]

    def _remove_unfinished(self) -> None:
        for unfinished in self._folder.glob(UNFINISHED):
            shutil.rmtree(unfinished, ignore_errors=True)

    def _check_space(self, nbytes: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        free, needed = shutil.disk_usage(self._folder).free, 1.05 * nbytes
        if free < needed:
            raise OSError(
                f"{self._folder}: a checkpoint needs {needed / 1e9:.2f} GB, but only"
                f" {free / 1e9:.2f} GB are free; delete other files, then resume with"
                " the same command"
            )

    def _failed(self, step: int, error: Exception) -> OSError:
        self._records.pop(step, None)
        if jax.process_index() == 0:
            self._remove_unfinished()
        latest = self.latest()
        newest = "start" if latest is None else f"checkpoint of step {latest}"
        return OSError(
            f"{self._folder}: saving the checkpoint of step {step} failed"
            f" ({one_line(error)[:300]}); remove the cause, then resume from the"
            f" {newest} with the same command"
        )

    def record_score(self, step: int, score: float) -> None:
        """Adds an evaluation score to the checkpoint of `step`, which must exist."""
        self.wait()
        if jax.process_index() == 0:
            checksums.write_score(self._folder / str(step), score)
            self._records |= records_in(self._folder)

    def check(self) -> None:
        """Raises OSError if the save in the background has failed; does not wait."""
        if self._manager is not None and not self._manager.is_saving_in_progress():
            self.wait()

    def wait(self) -> None:
        """Waits for the save in the background; raises OSError if it failed."""
        step, self._saving = self._saving, None
        if self._manager is None or step is None:
            return
        try:
            self._manager.wait_until_finished()
            if jax.process_index() == 0:
                remove(self._folder / _DELETED)
        except Exception as error:  # of Orbax, tensorstore or the operating system
            if not (self._folder / str(step)).is_dir():
                raise self._failed(step, error) from None
            self._manager.reload()
            print(
                f"WARNING: {self._folder}: an old checkpoint was not deleted"
                f" ({one_line(error)}); the next save, if any, tries again",
            )

    def finish(self) -> None:
        """Waits in another thread for the save; `wait` raises the error if it fails."""
        if self._manager is not None:
            with contextlib.suppress(Exception):
                self._manager.wait_until_finished()

    def restore(
        self, abstract: TrainState, *, make_room: Callable[[], None] = lambda: None
    ) -> tuple[int, TrainState, dict[str, Any]] | None:
        """Returns step, train state and loop state of the newest intact checkpoint.

        Arrays get the shardings of `abstract`. `make_room` is called before each
        checkpoint is loaded, to free device memory. Returns None if there is no
        checkpoint. Raises ValueError if all are corrupt, or if the newest intact one
        has another base than this run, or other tensors than `abstract`.
        """
        self.wait()
        corrupt: dict[int, str] = {}
        while (step := self._newest_intact(corrupt)) is not None:
            state: Any = None  # frees the state of a checkpoint that was not used
            make_room()
            folder, failure = self._folder / str(step), ""
            try:
                record = checksums.read_record(folder)
                checksums.check_base(folder, record, self._base)
                checksums.check_shapes(folder, record.tensors, abstract)
                state = _load(folder, record, abstract)
                loop = checksums.read_loop(folder, record)
            except CorruptCheckpointError as error:
                failure = str(error)
            if _in_any_process(bool(failure)):
                corrupt[step] = failure or f"{folder}: corrupt in another process"
                continue
            if jax.process_index() == 0:
                self._set_aside(corrupt, step)
            return step, state, loop
        return None

    def _newest_intact(self, corrupt: dict[int, str]) -> int | None:
        """Returns the newest intact step, or None if there are no checkpoints.

        In process 0, adds newer, corrupt steps to `corrupt`; raises an error if all
        steps are corrupt.
        """
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
                    f"{self._folder}: none of the checkpoints is intact"
                    f" ({'; '.join(corrupt.values())}); restore one, or use another"
                    " --workdir"
                )
        found = _from_first(found)
        return None if found < 0 else found

    def _set_aside(self, corrupt: Mapping[int, str], used: int) -> None:
        for step, error in corrupt.items():
            folder = self._folder / str(step)
            aside = folder.with_name(folder.name + DAMAGED)
            if os.path.lexists(aside):  # from an earlier start
                remove(aside)
            folder.rename(aside)
            print(
                f"WARNING: {error}; checkpoint renamed to {aside.name},"
                f" resuming from step {used}",
            )

    def close(self) -> None:
        try:
            self.wait()
        finally:
            if self._manager is not None:
                self._manager.close()


def retained_steps(records: Mapping[int, Record], keep: int) -> dict[int, list[str]]:
    """Returns the steps whose checkpoints are retained, each with its reasons.

    These are the `keep` newest steps, the newest healthy one, and the one with the
    highest score.
    """
    reasons = {step: ["newest"] for step in sorted(records)[-keep:]}
    healthy = [step for step, record in records.items() if record.healthy]
    if healthy:
        reasons.setdefault(max(healthy), []).append("healthy")
    scored = [(r.score, step) for step, r in records.items() if r.score is not None]
    if scored:
        reasons.setdefault(max(scored)[1], []).append("best")
    return reasons


def records_in(folder: pathlib.Path) -> dict[int, Record]:
    """Returns the readable records of a folder's checkpoints, by step."""
    records = {}
    for step in sorted(steps_in(folder)):
        with contextlib.suppress(CorruptCheckpointError):
            records[step] = checksums.read_record(folder / str(step))
    return records


def _load(folder: pathlib.Path, record: Record, abstract: Any) -> Any:
    """Loads and checks the arrays that `abstract` describes: all or part of a state."""
    try:
        with ocp.PyTreeCheckpointer() as checkpointer:
            loaded = checkpointer.restore(
                folder / "state",
                args=ocp.args.PyTreeRestore(
                    item=abstract,
                    restore_args=ocp.checkpoint_utils.construct_restore_args(abstract),
                    partial_restore=True,
                ),
            )
        for name, x in by_path(loaded).items():
            if not isinstance(x, jax.Array):  # `partial_restore` skips missing ones
                raise ValueError(f"the tensor {name} is missing")
    except Exception as error:
        cause: BaseException | None = error
        # After a signal, or if a device has too little memory, the files may be intact.
        while cause is not None:  # Orbax may wrap these in an error of its own
            if isinstance(cause, Stopped) or is_out_of_memory(cause):
                raise cause from None
            cause = cause.__cause__ or cause.__context__
        reason = one_line(error)[:300]
        raise CorruptCheckpointError(
            f"{folder}: Orbax cannot read the state: {reason}"
        ) from None
    checksums.check_tensors(folder, record.tensors, loaded)
    return loaded


def check_path(flag: str, path: pathlib.Path) -> None:
    """Raises ValueError if Orbax cannot restore from the path, the value of `flag`."""
    if "[" in str(path.absolute()):
        raise ValueError(
            f"{flag}={path}: must not contain a bracket, which Orbax reads as a pattern"
        )


def _from_first(value: int) -> int:
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def _in_any_process(value: bool) -> bool:
    return bool(np.any(multihost_utils.process_allgather(np.bool_(value))))


def remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def state_bytes(
    params: Params,
    optimizer: optax.GradientTransformation,
    reference: str | None = None,
) -> int:
    """Returns the size of a checkpoint in bytes.

    `reference` is the dtype of the reference model in the checkpoint, if it has one.
    """
    leaves = jax.tree.leaves((params, jax.eval_shape(optimizer.init, params)))
    if reference:
        copied = jax.tree.leaves(params)
        leaves += [jax.ShapeDtypeStruct(x.shape, reference) for x in copied]
    return sum(x.size * x.dtype.itemsize for x in leaves)


def describe_cost(nbytes: int, *, keep: int, folder: pathlib.Path) -> str:
    """Describes the space and save time of checkpoints of `nbytes` bytes each."""
    # In addition to the `keep` newest: the newest healthy one, the best one, one that
    # is being saved, and one in a dump.
    most = (keep + 4) * nbytes
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    seconds = f"{nbytes / 1e9:,.0f} s" if nbytes >= 1e9 else "less than 1 s"
    return (
        f"{format_size(nbytes)} each, the newest {keep} are kept, at most"
        f" {format_size(most)} in total ({free / 1e9:,.2f} GB free); saving takes"
        f" {seconds} at 1 GB/s"
    )


def format_size(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:,.1f} MB"


def size_of(folder: pathlib.Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def load_run_params(
    checkpoints: pathlib.Path, step: int | None, abstract: Params
) -> tuple[int, Params]:
    """Reads only the trained parameters from the checkpoint of a step (None: newest).

    Returns the step, and the parameters with the shapes, dtypes and shardings of
    `abstract`. Raises ValueError if that checkpoint is missing or corrupt.
    """
    steps = sorted(steps_in(checkpoints))
    if not steps:
        raise ValueError(
            f"{checkpoints}: contains no checkpoint; give the workdir of another run"
        )
    step = steps[-1] if step is None else step
    if step not in steps:
        raise ValueError(
            f"{checkpoints}: no checkpoint of step {step}; use one of {steps}"
        )
    folder = checkpoints.absolute() / str(step)
    try:
        checksums.verify(folder)
        record = checksums.read_record(folder)
        return step, _load(folder, record, {"params": abstract})["params"]
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            f"{error}; use the checkpoint of another step"
        ) from None
