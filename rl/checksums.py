"""Finds checkpoints; computes and checks their checksums.

Each checkpoint contains a `Record`, and checksums of its files in `SHA256SUMS`, which
`sha256sum -c` can check.
"""

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from rl import files
from rl.errors import one_line
from rl.update.examine import Finding, by_path, examine

LOOP_FILE, RECORD_FILE = "loop/metadata", "checksums/metadata"  # named by Orbax
SUMS, SCORE = "SHA256SUMS", "score.json"

Tensors = Mapping[str, tuple[list[int], str, int]]
"""Maps a tensor's path, such as `params/layers/q`, to its shape, dtype and checksum."""


class CorruptCheckpointError(ValueError):
    """Reports a checkpoint that is unreadable or does not match its checksums."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Holds the metadata and checksums of a checkpoint."""

    step: int  # number of steps done
    updates: int  # number of optimizer updates done
    healthy: bool  # False if alarms warned in this step, or did not check it
    score: float | None  # `rl.held_out.score_of`; None if not evaluated
    loop: str  # SHA-256 of the loop's state
    tensors: Tensors
    # "path" and "digest" of the frozen base under adapters; empty without adapters.
    base: Mapping[str, str] = dataclasses.field(default_factory=dict)


def steps_in(folder: pathlib.Path) -> set[int]:
    """Returns the steps with a complete checkpoint; their files may be corrupt."""
    names = (path.name for path in folder.glob("*"))
    return {int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name)}


def hash_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def tensors_of(tree: Any, found: Mapping[str, Finding]) -> Tensors:
    """Returns the value of `Record.tensors`; `found` is the result of `examine`."""
    return {
        name: (list(x.shape), str(x.dtype), found[name].digest)
        for name, x in by_path(tree).items()
    }


def describe_base(params: Any, path: str) -> dict[str, str]:
    """Returns the value of `Record.base`; `path` is the base's path or Hub id."""
    return {"path": path, "digest": hash_json(tensors_of(params, examine(params)))}


def check_base(folder: pathlib.Path, record: Record, base: Mapping[str, str]) -> None:
    """Raises ValueError if the digests of `record.base` and the run's `base` differ."""
    if record.base.get("digest") != base.get("digest"):
        saved, own = (
            f"{b['path']} ({b['digest'][:12]})" if b else "none"
            for b in (record.base, base)
        )
        raise ValueError(
            f"{folder}: the frozen base under the adapters is {saved}, but in this run"
            f" it is {own}; use the same config.model.path, config.model.dtype and"
            " config.model.lora"
        )


def read_record(folder: pathlib.Path) -> Record:
    """Reads a checkpoint's record, with the score that `write_score` wrote, if any."""
    try:
        record = Record(**_read(folder / RECORD_FILE))
    except TypeError as error:
        raise CorruptCheckpointError(
            f"{folder / RECORD_FILE}: not a checkpoint's record ({one_line(error)})"
        ) from None
    if folder.name != str(record.step):
        raise CorruptCheckpointError(
            f"{folder}: contains the checkpoint of step {record.step}, so its name"
            f" must be {record.step}"
        )
    if (folder / SCORE).exists():
        late = _read(folder / SCORE)
        if late != _late_score(late.get("score")):
            raise CorruptCheckpointError(f"{folder / SCORE}: wrong SHA-256")
        return dataclasses.replace(record, score=late["score"])
    return record


def read_loop(folder: pathlib.Path, record: Record) -> dict[str, Any]:
    """Reads the loop's state; raises CorruptCheckpointError if it is damaged."""
    loop = _read(folder / LOOP_FILE)
    if hash_json(loop) != record.loop:
        raise CorruptCheckpointError(f"{folder / LOOP_FILE}: wrong SHA-256")
    return loop


def write_score(folder: pathlib.Path, score: float) -> None:
    files.replace_json(folder / SCORE, _late_score(score))


def write_sums(folder: pathlib.Path) -> None:
    """Writes `SHA256SUMS` with hashes of all files except hidden ones and the score."""
    lines = (f"{sha}  {name}\n" for name, sha in _hash_files(folder).items())
    files.replace(folder / SUMS, "".join(lines))


def verify(folder: pathlib.Path) -> None:
    """Raises CorruptCheckpointError if files are missing or contradict `SHA256SUMS`."""
    for part in folder.glob("*/ocdbt.process_*"):
        if not part.with_name("manifest.ocdbt").is_file():
            raise CorruptCheckpointError(f"{part}: was not merged with other parts")
    sums = folder / SUMS
    try:
        pairs = [line.split("  ", 1) for line in sums.read_text().splitlines()]
        stated = {name: sha for sha, name in pairs}
        own = _hash_files(folder)
    except (OSError, ValueError) as error:
        where = getattr(error, "filename", None) or sums
        raise CorruptCheckpointError(f"{where}: {one_line(error)[:300]}") from None
    for name in sorted(stated.keys() | own.keys()):
        if name not in own:
            raise CorruptCheckpointError(f"{folder / name}: missing")
        if name not in stated:
            raise CorruptCheckpointError(f"{folder / name}: not listed in {SUMS}")
        if own[name] != stated[name]:
            raise CorruptCheckpointError(f"{folder / name}: wrong SHA-256")


def check_shapes(folder: pathlib.Path, stated: Tensors, abstract: Any) -> None:
    """Raises ValueError if names, shapes or dtypes of the tensors differ."""
    needed = {k: f"{x.dtype}{list(x.shape)}" for k, x in by_path(abstract).items()}
    saved = {k: f"{dtype}{list(shape)}" for k, (shape, dtype, _) in stated.items()}
    for name in sorted(needed.keys() | saved.keys()):
        has, needs = saved.get(name, "missing"), needed.get(name, "missing")
        if has != needs:
            raise ValueError(
                f"{folder}: the tensor {name} is {has}, but in this run it is {needs};"
                " use the same config.model, config.optimizer and config.objective"
            )


def check_tensors(folder: pathlib.Path, stated: Tensors, tree: Any) -> None:
    """Raises CorruptCheckpointError if a tensor of `tree` has a wrong checksum.

    Skips tensors of another dtype than in `stated`.
    """
    for name, (_, dtype, checksum) in tensors_of(tree, examine(tree)).items():
        # A tensor that was cast while it was loaded has another checksum.
        if dtype == stated[name][1] and checksum != stated[name][2]:
            raise CorruptCheckpointError(f"{folder}: tensor {name}: wrong checksum")


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


def _hash_files(folder: pathlib.Path) -> dict[str, str]:
    paths = files.visible(folder, "**/*")
    found = (p for p in paths if p.is_symlink() or not p.is_dir())
    names = sorted({p.relative_to(folder).as_posix() for p in found} - {SUMS, SCORE})
    hashes = files.sha256_of_each(folder / name for name in names)
    return dict(zip(names, hashes, strict=True))
