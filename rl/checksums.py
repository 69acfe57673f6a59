"""Checksums of a checkpoint: of its tensors, of the loop's state, and of its files.

Those of tensors and loop are an item of the save itself (`Record`). `SHA256SUMS` is
written once all files are on the disk; `sha256sum -c` reads it too.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from rl import files
from rl.processes.stopping import one_line
from rl.update.examine import by_path, examine

LOOP_FILE, RECORD_FILE = "loop/metadata", "checksums/metadata"  # named by Orbax
SUMS, SCORE = "SHA256SUMS", "score.json"

Tensors = Mapping[str, tuple[list[int], str, int]]
"""Shape, dtype and checksum of each tensor by its path, such as `params/layers/q`."""


class CorruptCheckpointError(ValueError):
    """A checkpoint does not match its checksums; the message names file or tensor."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a checkpoint says about itself.

    Attributes:
      step, updates: steps and optimizer applications done.
      healthy: whether no alarm held when it was saved.
      score: by which the best is retained, higher is better; None if not evaluated.
      loop: SHA-256 of the loop's state.
      tensors: see `Tensors`.
      base: path and digest of the frozen base of its adapters; empty without.
    """

    step: int
    updates: int
    healthy: bool
    score: float | None
    loop: str
    tensors: Tensors
    base: Mapping[str, str] = dataclasses.field(default_factory=dict)


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def tensors_of(tree: Any) -> Tensors:
    """Compute the checksums of a tree of arrays, on the devices."""
    found = examine(tree)
    return {
        name: (list(x.shape), str(x.dtype), found[name].digest)
        for name, x in by_path(tree).items()
    }


def describe_base(params: Any, path: str) -> dict[str, str]:
    """Return a base as a record names it: its path, and a digest of its tensors."""
    return {"path": path, "digest": hash_json(tensors_of(params))}


def check_base(folder: pathlib.Path, record: Record, base: Mapping[str, str]) -> None:
    """Refuse a checkpoint of adapters over another base.

    Raises:
      ValueError: names both bases.
    """
    if record.base.get("digest") != base.get("digest"):
        saved, own = (
            f"{b['path']} ({b['digest'][:12]})" if b else "none"
            for b in (record.base, base)
        )
        raise ValueError(
            f"{folder}: the frozen base of its adapters is {saved}, this run's is"
            f" {own}; use the same config.model.path, dtype and lora"
        )


def read_record(folder: pathlib.Path) -> Record:
    """Read what a checkpoint says about itself, with its late score if it has one.

    Raises:
      CorruptCheckpointError: it is missing, damaged, or of another step.
    """
    try:
        record = Record(**_read(folder / RECORD_FILE))
    except TypeError as error:
        reason = one_line(error)
        raise CorruptCheckpointError(f"{folder / RECORD_FILE}: {reason}") from None
    if folder.name != str(record.step):
        raise CorruptCheckpointError(f"{folder}: is of step {record.step}")
    if (folder / SCORE).exists():
        late = _read(folder / SCORE)
        if late != _late_score(late.get("score")):
            raise CorruptCheckpointError(f"{folder / SCORE}: its SHA-256 differs")
        return dataclasses.replace(record, score=late["score"])
    return record


def read_loop(folder: pathlib.Path, record: Record) -> dict[str, Any]:
    """Read the loop's state of a checkpoint.

    Raises:
      CorruptCheckpointError: it is missing or damaged.
    """
    loop = _read(folder / LOOP_FILE)
    if hash_json(loop) != record.loop:
        raise CorruptCheckpointError(f"{folder / LOOP_FILE}: its SHA-256 differs")
    return loop


def write_score(folder: pathlib.Path, score: float) -> None:
    """Add a score to a checkpoint that was saved before the evaluation ended."""
    files.replace_json(folder / SCORE, _late_score(score))


def write_sums(folder: pathlib.Path) -> None:
    """Write the SHA-256 of every file of a checkpoint that is on the disk."""
    sums = _hash_files(folder, sorted(_files_in(folder)))
    lines = (f"{sha}  {name}\n" for name, sha in sums.items())
    files.replace(folder / SUMS, "".join(lines))


def verify(folder: pathlib.Path) -> None:
    """Check the SHA-256 of every file of a checkpoint.

    A kill just after a save leaves it without them; what the run needs of it is still
    covered by `read_loop` and `check_tensors`.

    Raises:
      CorruptCheckpointError: names the first file that differs.
    """
    sums = folder / SUMS
    if not os.path.lexists(sums):
        return
    try:
        pairs = [line.split("  ", 1) for line in sums.read_text().splitlines()]
        stated = {name: sha for sha, name in pairs}
        there = _files_in(folder)
        for name in sorted(stated.keys() ^ there):
            is_so = "is missing" if name in stated else f"is not in {SUMS}"
            raise CorruptCheckpointError(f"{folder / name}: {is_so}")
        for name, sha in _hash_files(folder, sorted(there)).items():
            if sha != stated[name]:
                raise CorruptCheckpointError(f"{folder / name}: its SHA-256 differs")
    except CorruptCheckpointError:
        raise
    except (OSError, ValueError) as error:
        where = getattr(error, "filename", None) or sums
        raise CorruptCheckpointError(f"{where}: {one_line(error)[:300]}") from None


def check_shapes(folder: pathlib.Path, stated: Tensors, abstract: Any) -> None:
    """Compare a checkpoint's tensors with those that a run needs.

    Raises:
      ValueError: the checkpoint is of another model or optimizer.
    """
    needed = by_path(abstract)
    for name in sorted(needed.keys() ^ stated.keys()):
        there = "holds no" if name in needed else "holds a"
        raise ValueError(f"{folder}: {there} {name}, unlike this run's state")
    for name, x in needed.items():
        shape, dtype, _ = stated[name]
        if tuple(shape) != x.shape or dtype != x.dtype:
            raise ValueError(
                f"{folder}: {name} is {dtype}{shape}, this run's is"
                f" {x.dtype}{list(x.shape)}"
            )


def check_tensors(folder: pathlib.Path, stated: Tensors, tree: Any) -> None:
    """Compare loaded tensors with their checksums, on the devices.

    Raises:
      CorruptCheckpointError: names the first that is not what was saved.
    """
    for name, (_, dtype, checksum) in tensors_of(tree).items():
        # A tensor that was cast when it was loaded has other bits.
        if dtype == stated[name][1] and checksum != stated[name][2]:
            raise CorruptCheckpointError(f"{folder}: {name} is not what was saved")


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise TypeError("not a JSON object")
        return content
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(f"{path}: {one_line(error)[:300]}") from None


def _late_score(score: Any) -> dict[str, Any]:
    return {"score": score, "sha256": hash_json(score)}


def _hash_files(folder: pathlib.Path, names: list[str]) -> dict[str, str]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        hashes = pool.map(files.sha256, (folder / name for name in names))
        return dict(zip(names, hashes, strict=True))


def _files_in(folder: pathlib.Path) -> set[str]:
    """Return the files of a checkpoint that have a checksum, by path within it."""
    own = {SUMS, SCORE, f".{SUMS}.part", f".{SCORE}.part"}
    paths = (p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths} - own
