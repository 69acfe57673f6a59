"""Reads and writes safetensors files one tensor at a time, to limit host memory.

The `safetensors` package writes a file from a dictionary of all tensors, and copies the
tensors that it reads. The format: https://github.com/huggingface/safetensors#format
"""

import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Specs = Mapping[str, tuple[tuple[int, ...], np.dtype]]


def refuse_pointer(path: pathlib.Path, start: bytes) -> None:
    """Raises ValueError if `start`, a file's first bytes, is from a Git LFS pointer."""
    if start.startswith(b"version "):
        raise ValueError(
            f"{path}: is a Git LFS pointer, not the file; run `git lfs pull`"
        )


def read_tensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns the tensors of a file as read-only, memory-mapped arrays.

    Raises ValueError if the file is damaged, or has a tensor of an unsupported dtype.
    """
    path = pathlib.Path(path)
    with path.open("rb") as file:
        start = file.read(8)
        refuse_pointer(path, start)
        try:
            with safe_open(path, framework="numpy"):
                pass  # checks the header against the file
        except SafetensorError as error:
            raise ValueError(
                f"{path}: damaged safetensors file ({error}); copy or download it again"
            ) from None
        length = int.from_bytes(start, "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "r")[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if (dtype := _DTYPES.get(entry["dtype"])) is None:
            raise ValueError(
                f"{path}: tensor {name} has dtype {entry['dtype']}, but only"
                f" {', '.join(_DTYPES)} are supported; save the model in one of them"
            )
        content = data[slice(*entry["data_offsets"])]
        tensors[name] = np.frombuffer(content, dtype).reshape(entry["shape"])
    return tensors


def write_tensors(
    path: str | os.PathLike, specs: Specs, tensors: Iterable[tuple[str, np.ndarray]]
) -> None:
    """Writes a stream of tensors to a file, byte for byte as `safetensors` would.

    An existing file is overwritten in place. In shared memory, allocating a new file
    would take three times as long as copying the tensors.

    Args:
      specs: `(shape, dtype)` of every tensor of the file, by name.
      tensors: `(name, array)` pairs in any order. Each is written before the next is
        requested.

    Raises:
      ValueError: a tensor is missing, or has another shape or dtype than in `specs`.
      KeyError: a tensor is not in `specs`, or occurs twice.
    """
    header, offsets, size = _layout(specs)
    left = dict(specs)
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        file.truncate(len(header) + size)
        file.write(header)
        for name, array in tensors:
            shape, dtype = left.pop(name)
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"{path}: tensor {name} is {array.dtype} {array.shape}, but the"
                    f" header says {dtype} {shape}"
                )
            file.seek(len(header) + offsets[name])
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        if left:
            raise ValueError(f"{path}: tensors are missing: {sorted(left)[:3]}")
        file.flush()
        os.fsync(file.fileno())


def _layout(specs: Specs) -> tuple[bytes, dict[str, int], int]:
    """Returns a file's header, the offset of each tensor, and the size of the data."""
    # transformers requires this metadata.
    header: dict[str, dict[str, Any]] = {"__metadata__": {"format": "pt"}}
    offsets, size = {}, 0
    for name in sorted(specs, key=lambda name: (-specs[name][1].itemsize, name)):
        shape, dtype = specs[name]
        offsets[name] = size
        size += dtype.itemsize * math.prod(shape)
        header[name] = {
            "dtype": _NAMES[np.dtype(dtype)],
            "shape": list(shape),
            "data_offsets": [offsets[name], size],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets, size
