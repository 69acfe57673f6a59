"""Writes each version of the policy to a folder that the vLLM servers read.

    ROOT/policy-weights-PID-TOKEN/     of one run, mode 700
        owner                          locked while the trainer runs; holds TOKEN
        0/model.safetensors            two versions: the one that is served, and
        1/model.safetensors            the one that is being published

Of adapters alone it is 0/adapter_model.safetensors and 0/adapter_config.json.

ROOT is shared memory, or a directory that the servers share with the trainer.
"""

import dataclasses
import fcntl
import logging
import math
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from models.safetensors_io import Specs, write_tensors
from rollout.vllm.checksum import checksum

Export = Callable[[Any], Iterable[tuple[str, np.ndarray]]]
SHARED_MEMORY = pathlib.Path("/dev/shm")
VERSIONS = 2  # a failed publish goes back to the version before
_PREFIX = "policy-weights-"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedWeights:
    """One version of the policy on disk."""

    label: str  # reported by a server for each token that it samples with this version
    path: str  # a safetensors file with Hugging Face names
    checksums: dict[str, int]  # of each tensor, as the trainer exported it


class WeightFolder:
    """Holds the served version of the policy and the one that is being published."""

    def __init__(
        self,
        weight_dir: str = "",
        *,
        fallback: pathlib.Path,
        export: Export,
        specs: Specs,
        dtype: str,
        file: str = "model.safetensors",
        described: Mapping[str, str] | None = None,
    ):
        """Creates the folder, after removing those of trainers that were killed.

        Args:
          weight_dir: parent of the folder; if empty, shared memory.
          fallback: its parent if shared memory has no room.
          export: yields `(Hugging Face name, host array)` of a parameter tree.
          specs: `(shape, dtype)` of what `export` yields.
          dtype: the serving dtype, which all of `specs` have.
          file: name of a version's file.
          described: texts of the other files of the folder, by name.

        Raises:
          OSError: two versions do not fit, or the parent is not writable.
        """
        # vLLM does not tie the head: its reload leaves a tied one on the old weights.
        self._tied = _EMBEDDING in specs and _HEAD not in specs
        self.specs = dict(specs) | ({_HEAD: specs[_EMBEDDING]} if self._tied else {})
        self.dtype = dtype
        self._export = export
        self._file, self._described = file, described or {}
        self._bytes = sum(
            math.prod(s) * kind.itemsize for s, kind in self.specs.values()
        )
        parents = (
            [pathlib.Path(weight_dir)] if weight_dir else [SHARED_MEMORY, fallback]
        )
        for parent in parents:
            parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(parent)
            try:
                _check_space(parent, VERSIONS * self._bytes)
                break
            except OSError as error:
                if parent is parents[-1]:
                    raise
                log.warning("%s; using %s, which is slower", error, fallback)
        self.token = secrets.token_hex(16)
        self.path, lock = _claim(parent.absolute(), self.token)
        self._lock: int | None = lock
        self.owner = self.path / "owner"  # a server shows that it can read this

    def write(
        self, params: Any, label: str, *, keep: PublishedWeights | None
    ) -> PublishedWeights:
        """Writes a version tensor by tensor, over the older of the two.

        Args:
          params: the parameter tree.
          label: of the version.
          keep: the version that servers may load meanwhile.

        Raises:
          OSError: the folder is full. `keep` is intact.
        """
        slots = [self.path / str(i) / self._file for i in range(VERSIONS)]
        path = next(slot for slot in slots if keep is None or str(slot) != keep.path)
        path.parent.mkdir(exist_ok=True)
        for name, text in self._described.items():
            (path.parent / name).write_text(text, encoding="utf-8")
        held = path.stat().st_size if path.exists() else 0
        _check_space(self.path, self._bytes - held)
        checksums: dict[str, int] = {}

        def tensors() -> Iterator[tuple[str, np.ndarray]]:
            for name, array in self._named(params):
                array = np.ascontiguousarray(array)
                checksums[name] = checksum(array)
                yield name, array

        try:
            write_tensors(path, self.specs, tensors(), metadata={"format": "pt"})
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return PublishedWeights(label, str(path), checksums)

    def _named(self, params: Any) -> Iterator[tuple[str, np.ndarray]]:
        for name, array in self._export(params):
            yield name, array
            if self._tied and name == _EMBEDDING:
                yield _HEAD, array

    def close(self) -> None:
        """Removes the folder."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def remove_abandoned(root: pathlib.Path) -> None:
    """Removes the folders below `root` whose trainers were killed.

    A folder is locked as long as its trainer lives; the kernel releases the lock.
    """
    for folder in root.glob(f"{_PREFIX}*"):
        lock = None
        try:
            lock = os.open(folder / "owner", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:  # its removal was interrupted
            pass
        except OSError:  # in use, or another user's
            continue
        finally:
            if lock is not None:
                os.close(lock)
        log.info("removing %s, whose trainer was killed", folder)
        shutil.rmtree(folder, ignore_errors=True)


def _claim(root: pathlib.Path, token: str) -> tuple[pathlib.Path, int]:
    """Creates a locked folder: it gets its name after it is locked."""
    unnamed = pathlib.Path(tempfile.mkdtemp(prefix=".policy-", dir=root))
    lock = os.open(unnamed / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(lock, token.encode())
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        log.warning("%s: no file locks here (%s)", root, error.strerror)
    named = root / f"{_PREFIX}{os.getpid()}-{token[:8]}"
    return unnamed.rename(named), lock


def _check_space(folder: pathlib.Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder} has {free / 1e9:.2f} GB free, the policy's weights need"
            f" {needed / 1e9:.2f} GB (config.rollout.vllm.weight_dir)"
        )
