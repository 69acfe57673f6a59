"""What a folder of tensors proves of itself, `proof.json`.

Size and SHA-256 of every file, a digest of every tensor taken on the devices, step,
updates, versions, and a SHA-256 of the proof itself.
"""

import concurrent.futures
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import time
from collections.abc import Mapping
from typing import Any

from rl.files import sha256, sync
from rl.processes.stopping import one_line
from rl.update.examine import Finding, by_path, examine

PROOF, LOOP = "proof.json", "loop.json"

_FORMAT = 1
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


class Damaged(ValueError):
    """A checkpoint that does not agree with its proof; says what is wrong where."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a checkpoint says of itself.

    Attributes:
      format: of the folder's layout.
      step: steps done, the folder's name. None for parameters alone.
      updates: optimizer applications done.
      healthy: whether no alarm held when it was saved.
      score: by which the best is kept, higher is better; None where nothing was
        evaluated.
      saved: when, ISO 8601 in UTC.
      seconds: that it took to write.
      versions: of the libraries that wrote it.
      tensors: shape, dtype and digest by path (see `rl.update.examine`).
      files: size in bytes and SHA-256 by path within the folder.
    """

    format: int
    step: int | None
    updates: int
    healthy: bool
    score: float | None
    saved: str
    seconds: float
    versions: Mapping[str, str]
    tensors: Mapping[str, tuple[list[int], str, int]]
    files: Mapping[str, tuple[int, str]]

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


def write_proof(
    folder: pathlib.Path,
    *,
    tensors: Mapping[str, tuple[list[int], str, int]],
    began: float,
    step: int | None = None,
    updates: int = 0,
    healthy: bool = True,
    score: float | None = None,
) -> None:
    """Proves a folder whose other files are all there; see `Proof`."""
    files = _files(folder)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        digests = pool.map(sha256, (folder / name for name in files))
        found = {
            name: ((folder / name).stat().st_size, digest)
            for name, digest in zip(files, digests, strict=True)
        }
    now = time.time()
    proof = Proof(
        format=_FORMAT,
        step=step,
        updates=updates,
        healthy=healthy,
        score=score,
        saved=datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(),
        seconds=round(now - began, 3),
        versions=library_versions(),
        tensors=tensors,
        files=found,
    )
    write(folder / PROOF, proof_text(proof))
    sync(folder)


def proof_text(proof: Proof) -> str:
    """What `proof.json` holds."""
    content = dataclasses.asdict(proof)
    own = hashlib.sha256(_canonical(content).encode()).hexdigest()
    return _canonical({**content, "sha256": own})


def read_proof(folder: pathlib.Path) -> Proof:
    """A folder's proof, if it is as it was written.

    Raises:
      Damaged: it is not there, or is not.
    """
    path = folder / PROOF
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror})") from None
    try:
        content = json.loads(raw)
        stated = content.pop("sha256")
        whole = _canonical({**content, "sha256": stated}).encode() == raw
        own = hashlib.sha256(_canonical(content).encode()).hexdigest()
        if not whole or own != stated:
            raise ValueError("its SHA-256 does not fit")
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}; this code reads {_FORMAT}")
        return Proof(**content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path}: {one_line(error)[:300]}") from None


def verify(folder: pathlib.Path) -> Proof:
    """Holds every file of a checkpoint to its proof; reads all of them.

    The tensors' own digests are compared where they are loaded.

    Raises:
      Damaged: names the first file that differs, and how.
    """
    proof = read_proof(folder)
    if proof.step is not None and folder.name != str(proof.step):
        raise Damaged(f"{folder}: is the checkpoint of step {proof.step}")
    there = set(_files(folder)) - {PROOF}
    for name in sorted(proof.files.keys() - there):
        raise Damaged(f"{folder / name}: is missing")
    for name in sorted(there - proof.files.keys()):
        raise Damaged(f"{folder / name}: is not in the proof")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = [
            pool.submit(_check_file, folder / name, size, digest)
            for name, (size, digest) in sorted(proof.files.items())
        ]
        for check in checks:
            check.result()
    if proof.step is not None:
        read_loop(folder, proof.step)
    return proof


def _check_file(path: pathlib.Path, size: int, digest: str) -> None:
    try:
        if path.is_symlink() or not path.is_file():
            raise Damaged(f"{path}: is no regular file")
        if (found := path.stat().st_size) != size:
            raise Damaged(f"{path}: has {found:,} bytes, not {size:,}")
        if sha256(path) != digest:
            raise Damaged(f"{path}: its bytes have changed (SHA-256 does not fit)")
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror})") from None


def loop_text(step: int, state: Mapping[str, Any]) -> str:
    """What `loop.json` holds: the loop's own state, after `step` steps."""
    return _canonical({"step": step, "state": state})


def read_loop(folder: pathlib.Path, step: int) -> dict[str, Any]:
    """The loop's own state.

    Raises:
      Damaged: it cannot be read, or is of another step.
    """
    path = folder / LOOP
    try:
        loop = json.loads(path.read_bytes())
        if loop["step"] != step:
            raise ValueError(f"is the loop's state of step {loop['step']}")
        return loop["state"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path}: {one_line(error)[:300]}") from None


def tensors_of(
    tree: Any, findings: Mapping[str, Finding]
) -> dict[str, tuple[list[int], str, int]]:
    """Shape, dtype and digest by path, as `write_proof` takes them."""
    return {
        name: (list(x.shape), str(x.dtype), findings[name].digest)
        for name, x in by_path(tree).items()
    }


def check_shapes(folder: pathlib.Path, stated: Mapping, abstract: Any) -> None:
    """Holds what a proof states to the tensors that are wanted.

    Raises:
      ValueError: the checkpoint is whole, and another model's.
    """
    wanted = by_path(abstract)
    for name in sorted(wanted.keys() ^ stated.keys()):
        there = "holds no" if name in wanted else "holds a"
        raise ValueError(f"{folder}: {there} {name}, unlike this run's state")
    for name, x in wanted.items():
        shape, dtype, _ = stated[name]
        if tuple(shape) != x.shape or dtype != x.dtype:
            raise ValueError(
                f"{folder}: {name} is {dtype}{shape}, this run's is"
                f" {x.dtype}{list(x.shape)}"
            )


def check_tensors(folder: pathlib.Path, stated: Mapping, tree: Any) -> None:
    """Holds loaded tensors to their digests, on the devices.

    Raises:
      Damaged: names the first that is not what was saved.
    """
    leaves = by_path(tree)
    for name, finding in examine(tree).items():
        _, dtype, digest = stated[name]
        # A tensor that was cast on its way has other bits.
        if dtype == leaves[name].dtype and finding.digest != digest:
            raise Damaged(
                f"{folder}: {name} is not what was saved (digest {finding.digest:08x},"
                f" its proof says {digest:08x})"
            )


def library_versions() -> dict[str, str]:
    """Of what computes and stores a run's numbers."""
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **libraries}


def _files(folder: pathlib.Path) -> list[str]:
    """All that is in a folder and is no folder, by path within it."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


def _canonical(content: Any) -> str:
    return json.dumps(content, sort_keys=True, indent=1) + "\n"


def write(path: pathlib.Path, text: str) -> None:
    """Writes a file, and waits for the disk."""
    path.write_text(text, encoding="utf-8")
    sync(path)
