"""The flight recorder: what each update was given, so that a bad step can be repeated.

    WORKDIR/recorder/STEP.safetensors   the mini-batches and scalars of a step's updates
    WORKDIR/recorder/journal.jsonl      what came of them, and digests of the parameters

Records reach back to the last healthy checkpoint, for a fault may have begun before a
newer one: it and they give the state at any moment since, an update being a function
of its state and its arguments. A `dump` is a folder with all of that in it, which
`python -m tools.replay` repeats.

A 7B run's step of 2,048 completions of 4,096 tokens takes 62 MB: eight bytes for each
token, its id and its sampler's log-probability, for all else stands still along a row.
It is written beside the update.
"""

import concurrent.futures
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np
import safetensors
import safetensors.numpy

from configs.schema import Count, NotNegative
from rl import files
from rl.batches import compact
from rl.checkpoint import proofs_in, steps_in
from rl.hosts.stopping import in_a_line
from rl.types import Batch, Group, Hyper
from rl.workdir.proof import library_versions

_JOURNAL, _RECORD = "journal.jsonl", ".safetensors"
_METRICS = 50  # rows of metrics.jsonl that a dump keeps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A completion of a step.

    Attributes:
      problem: its id.
      index: among those of its group.
      correct, reward, finish_reason: as in its group.
      versions: the oldest and the newest that drew it.
      tokens: SHA-256 of prompt and completion, by which it is found in packed rows.
    """

    problem: str
    index: int
    correct: bool
    reward: float
    finish_reason: str
    versions: tuple[int, int]
    tokens: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the updates of a step were given.

    Attributes:
      step: steps done before it; the console calls it one more.
      mini_batches, hypers: the arguments of `Engine.update`.
      drawn: its completions.
    """

    step: int
    mini_batches: list[list[Batch]]
    hypers: list[Hyper]
    drawn: list[Drawn]


class Recorder:
    """Keeps records, and dumps them when the `with` around a run ends by an error.

    The recorder never ends a run: where it cannot write it says so once, and is silent.
    """

    def __init__(
        self,
        workdir: pathlib.Path,
        base: pathlib.Path,
        *,
        max_gb: NotNegative,
        dumps: Count,
        settle: Callable[[], None] = lambda: None,
    ):
        """
        Args:
          workdir: of the run.
          base: the base model's folder, from which a run without checkpoints began.
          max_gb: of the records; the oldest go, and what needs them cannot be repeated.
            0 switches the recorder off.
          dumps: that are kept, the newest.
          settle: waits for a checkpoint that is being written: its rotation may take
            the one that a dump is to hold.
        """
        self._settle = settle
        self._workdir, self._base = workdir, base
        self._folder = workdir / "recorder"
        self._max_bytes, self._dumps = int(max_gb * 1e9), dumps
        self._writing = concurrent.futures.ThreadPoolExecutor(1, "recorder")
        self._journal: files.Rows | None = None
        self._step = 0  # as the console counts
        self._whole_since = 0  # all records of this step and later ones are there
        self._begun, self._broken = False, False

    def begin(self, step: int) -> None:
        """Goes on after `step` steps; records of work that was lost go."""
        self._step, self._begun = step, self._max_bytes > 0
        self._run(self._begin, step)

    def _begin(self, step: int) -> None:
        self._whole_since = step
        if self._journal:
            self._journal.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._journal = files.Rows(self._folder / _JOURNAL)

    def record(
        self,
        step: int,
        groups: Sequence[Group],
        mini_batches: Sequence[Sequence[Batch]],
        hypers: Sequence[Hyper],
    ) -> None:
        """Begins to write down what the updates of a step are given.

        Args:
          step: steps done.
          groups: of the step.
          mini_batches, hypers: see `Engine.update`; not changed afterwards.
        """
        self._step = step + 1
        self._run(self._record, step, groups, mini_batches, hypers)

    def _record(self, step, groups, mini_batches, hypers) -> None:
        path = self._folder / f"{step}{_RECORD}"
        part = path.with_suffix(".part")
        write_record(part, step, groups, mini_batches, hypers)
        part.rename(path)
        since = self._origins(before=step + 1)[0]
        sizes = {s: self._path(s).stat().st_size for s in recorded(self._folder)}
        total = sum(sizes.values())
        if any(old < since for old in sizes):
            self._forget(since)
        for old in sorted(sizes):
            if old < since or (total > self._max_bytes and old != step):
                total -= sizes[old]
                self._path(old).unlink()
                self._whole_since = old + 1

    def _origins(self, *, before: int) -> list[int]:
        """Checkpoints of under `before` steps from which one would repeat, best first.

        The last healthy one, then the newest; 0, the base, where there is none.
        """
        proofs = proofs_in(self._workdir / "checkpoints")
        steps = sorted((step for step in proofs if step < before), reverse=True)
        return sorted(steps, key=lambda step: not proofs[step].healthy) or [0]

    def _forget(self, since: int) -> None:
        rows = files.read_rows(self._folder / _JOURNAL, appended=True)
        kept = [row for _, row in rows if row["step"] >= since]
        self._journal.close()
        files.replace_rows(self._folder / _JOURNAL, kept)
        self._journal = files.Rows(self._folder / _JOURNAL)

    def _path(self, step: int) -> pathlib.Path:
        return self._folder / f"{step}{_RECORD}"

    def updated(self, step: int, stats: Sequence[Mapping[str, Any]]) -> None:
        """Notes the statistics of a step's updates."""
        self._run(self._note, {"step": step, "updates": [plain(s) for s in stats]})

    def published(self, step: int, digests: Mapping[str, int]) -> None:
        """Notes the parameters after `step` steps."""
        self._step = step
        self._run(self._note, {"step": step, "params": dict(digests)})

    def _note(self, row: Mapping[str, Any]) -> None:
        self._journal.write(row)

    def _run(self, do: Callable[..., None], *args: Any) -> None:
        """In the background, one after the other; not after one has failed."""
        if self._max_bytes:
            self._writing.submit(self._guarded, do, *args)

    def _guarded(self, do: Callable[..., None], *args: Any) -> None:
        if self._broken:
            return
        try:
            do(*args)
        except Exception as error:
            self._broken = True
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        reason = in_a_line(error)
        print(f"WARNING: the recorder writes no more: {reason}", flush=True)

    def dump(self, cause: str, *, error: str = "") -> pathlib.Path | None:
        """Puts all that repeating the last steps needs into a folder, and names it.

        Args:
          cause: a line.
          error: the traceback, if any.

        Returns:
          `WORKDIR/dumps/STEP`, the step being the last that was begun; None where it
          could not be written.
        """
        if not self._begun:
            return None
        self._settle()
        try:
            folder = self._writing.submit(self._dump, cause, error).result()
        except Exception as failure:
            self._warn(failure)
            return None
        print(f"dumped: python -m tools.replay {folder}", flush=True)
        return folder

    def _dump(self, cause: str, error: str) -> pathlib.Path:
        into = self._workdir / "dumps"
        # What an earlier one left on a full disk holds on to a whole checkpoint.
        for left in into.glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True)
        part = into / f".{self._step}.part"
        part.mkdir(parents=True)
        checkpoints = self._workdir / "checkpoints"
        origins = self._origins(before=self._step)
        whole = (step for step in origins if step >= self._whole_since)
        if checkpoint := next(whole, origins[0]):
            # Links: it stays when the rotation takes its name, and costs nothing until.
            _link_tree(
                checkpoints / str(checkpoint), part / "checkpoints" / str(checkpoint)
            )
        _link_tree(self._folder, part / "recorder")
        # The run goes on writing to its own.
        (part / "recorder" / _JOURNAL).unlink()
        shutil.copyfile(self._folder / _JOURNAL, part / "recorder" / _JOURNAL)
        shutil.copytree(self._workdir / "assets", part / "assets")
        for name in ("config.json", "manifest.json"):
            shutil.copyfile(self._workdir / name, part / name)
        rows = files.read_rows(self._workdir / "metrics.jsonl", appended=True)
        files.replace_rows(part / "metrics.jsonl", [row for _, row in rows][-_METRICS:])
        about = {
            "step": self._step,
            "cause": cause,
            "error": error,
            "checkpoint": checkpoint,
            "devices": [jax.device_count(), jax.devices()[0].device_kind],
            "base": str(self._base.absolute()),
            "time": datetime.datetime.now(datetime.UTC).isoformat(),
            "versions": library_versions(),
        }
        files.replace_json(part / "dump.json", about)
        folder = into / str(self._step)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        kept = sorted(steps_in(into), key=lambda s: (into / str(s)).stat().st_mtime)
        for old in kept[: -self._dumps]:
            shutil.rmtree(into / str(old))
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if isinstance(error, Exception):
            lines = traceback.format_exception(kind, error, trace)
            self.dump(in_a_line(error), error="".join(lines))
        self._writing.shutdown()
        if self._journal:
            self._journal.close()


# -- records -------------------------------------------------------------------------


def write_record(
    path: pathlib.Path,
    step: int,
    groups: Sequence[Group],
    mini_batches: Sequence[Sequence[Batch]],
    hypers: Sequence[Hyper],
) -> None:
    """Writes what `read_record` reads."""
    arrays: dict[str, np.ndarray] = {}
    for m, micro in enumerate(mini_batches):
        for b, batch in enumerate(micro):
            for field in dataclasses.fields(Batch):
                array = getattr(batch, field.name)
                for kind, part in compact.encode(np.asarray(array)).items():
                    arrays[f"{m}/{b}/{field.name}/{kind}"] = part
    about = {
        "step": step,
        "shapes": [[b.token_ids.shape for b in micro] for micro in mini_batches],
        "hypers": [
            {f.name: getattr(h, f.name).item() for f in dataclasses.fields(Hyper)}
            for h in hypers
        ],
        "drawn": [dataclasses.asdict(drawn) for g in groups for drawn in _drawn(g)],
    }
    safetensors.numpy.save_file(arrays, path, metadata={"about": json.dumps(about)})


def read_record(path: pathlib.Path) -> Record:
    """Reads a step's record, bit for bit as it was given.

    Raises:
      ValueError: names the file, which is no whole record.
    """
    try:
        with safetensors.safe_open(path, "numpy") as file:
            about = json.loads(file.metadata()["about"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}

        def read(name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
            parts = {kind: f"{name}/{kind}" for kind in compact.KINDS}
            found = {k: arrays[name] for k, name in parts.items() if name in arrays}
            return compact.decode(found, shape, dtype)

        mini_batches = [
            [
                Batch(
                    *(
                        read(f"{m}/{b}/{f.name}", shape, f.type.dtypes[0])
                        for f in dataclasses.fields(Batch)
                    )
                )
                for b, shape in enumerate(shapes)
            ]
            for m, shapes in enumerate(about["shapes"])
        ]
        types = {"first_update": np.bool_}
        hypers = [
            Hyper(**{k: types.get(k, np.float32)(v) for k, v in values.items()})
            for values in about["hypers"]
        ]
        drawn = [
            Drawn(**{**row, "versions": tuple(row["versions"])})
            for row in about["drawn"]
        ]
    except (
        safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError
    ) as error:  # fmt: skip
        reason = in_a_line(error)
        raise ValueError(f"{path}: no record of a step ({reason})") from None
    return Record(
        step=about["step"], mini_batches=mini_batches, hypers=hypers, drawn=drawn
    )


def recorded(folder: pathlib.Path) -> list[int]:
    """Steps whose records are there."""
    names = (path.name.removesuffix(_RECORD) for path in folder.glob(f"*{_RECORD}"))
    return sorted(int(name) for name in names if name.isdigit())


def read_journal(folder: pathlib.Path) -> tuple[dict[int, list], dict[int, dict]]:
    """Statistics of the updates of each step, and digests of the parameters after."""
    updates, params = {}, {}
    for _, row in files.read_rows(folder / _JOURNAL, appended=True):
        if "updates" in row:
            updates[row["step"]] = row["updates"]
        else:
            params[row["step"]] = row["params"]
    return updates, params


def token_hash(*parts: np.ndarray) -> str:
    """Of a prompt and its completion, as in `Drawn`."""
    return hashlib.sha256(np.concatenate(parts).astype(np.int32).tobytes()).hexdigest()


def _drawn(group: Group) -> list[Drawn]:
    return [
        Drawn(
            problem=group.problem.id,
            index=index,
            correct=bool(correct),
            reward=float(reward),
            finish_reason=completion.finish_reason,
            versions=(int(completion.versions.min()), int(completion.versions.max())),
            tokens=token_hash(group.prompt_ids, completion.token_ids),
        )
        for index, (completion, correct, reward) in enumerate(
            zip(group.completions, group.correct, group.rewards, strict=True)
        )
    ]


def plain(tree: Any) -> Any:
    """NumPy scalars as the numbers of JSON, which hold them exactly."""
    if isinstance(tree, Mapping):
        return {key: plain(value) for key, value in tree.items()}
    return np.asarray(tree).item()


def _link_tree(source: pathlib.Path, target: pathlib.Path) -> None:
    """A folder of the same files; copies where the file system knows no links."""

    def link(a: str, b: str) -> None:
        try:
            os.link(a, b)
        except OSError:
            shutil.copyfile(a, b)

    shutil.copytree(source, target, copy_function=link)
