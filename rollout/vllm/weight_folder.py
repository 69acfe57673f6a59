"""Writes each version of the policy to a folder that the vLLM servers read.

    ROOT/policy-weights-PID-TOKEN/     the folder of one run, mode 700
        owner                          locked while the trainer runs; contains TOKEN
        0/model.safetensors            two versions: the served one and
        1/model.safetensors            the one being published

A version of adapters consists of adapter_model.safetensors and adapter_config.json.
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
VERSIONS = 2  # a failed publish returns to the previous version
_PREFIX = "policy-weights-"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedWeights:
    """Describes one published version of the policy."""

    label: str  # version label that servers report for each sampled token
    path: str  # safetensors file with Hugging Face or PEFT names
    checksums: dict[str, int]  # checksum of each tensor in the file


class WeightFolder:
    """Writes versions of the policy, and keeps the served one during a publish."""

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
        """Creates the folder, and removes the folders of killed trainers.

        Args:
          weight_dir: the parent of the folder; if empty, shared memory.
          fallback: the parent if shared memory is too small.
          export: a function that yields `(name in the file, host array)` for the
            tensors of a parameter tree.
          specs: `(shape, dtype)` of each tensor from `export`.
          dtype: the serving dtype, which all `specs` have.
          file: the name of a version's weights file.
          described: the texts of a version's other files, by name.

        Raises:
          OSError: two versions do not fit, or the parent is not writable.
        """
        # vLLM's reload does not update a tied head, so publish the head separately.
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
        self.owner = self.path / "owner"  # servers prove access by reading this file

    def write(
        self, params: Any, label: str, *, keep: PublishedWeights | None
    ) -> PublishedWeights:
        """Writes a version, one tensor at a time, to a folder that `keep` does not use.

        Args:
          params: the parameter tree.
          label: the label of the version.
          keep: the version that servers may load during the write.

        Raises:
          OSError: the folder is full; `keep` is not changed.
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
            write_tensors(path, self.specs, tensors())
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

    A folder is locked while its trainer runs; the kernel releases the lock.
    """
    for folder in root.glob(f"{_PREFIX}*"):
        lock = None
        try:
            lock = os.open(folder / "owner", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:  # an earlier removal was interrupted
            pass
        except OSError:  # in use, or owned by another user
            continue
        finally:
            if lock is not None:
                os.close(lock)
        log.info("removing %s, whose trainer was killed", folder)
        shutil.rmtree(folder, ignore_errors=True)


def _claim(root: pathlib.Path, token: str) -> tuple[pathlib.Path, int]:
    """Creates the folder of a run, locks it and gives it its final name.

    Returns:
      The folder, and the file descriptor that holds the lock.
    """
    unnamed = pathlib.Path(tempfile.mkdtemp(prefix=".policy-", dir=root))
    lock = os.open(unnamed / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(lock, token.encode())
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        log.warning(
            "%s: file locks fail (%s); if the trainer is killed, delete its folder",
            root,
            error.strerror,
        )
    named = root / f"{_PREFIX}{os.getpid()}-{token[:8]}"
    return unnamed.rename(named), lock


def _check_space(folder: pathlib.Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder} has {free / 1e9:.2f} GB free, but the policy's weights need"
            f" {needed / 1e9:.2f} GB; set config.rollout.vllm.weight_dir to a directory"
            " with more space"
        )
