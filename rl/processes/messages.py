"""Commands between the processes of a run, as bytes.

A message is a name with arguments: numbers, text, lists, tuples, dictionaries, arrays
and the dataclasses below. Reading one can make nothing else and executes nothing.
"""

import dataclasses
import json
from typing import Any

import numpy as np

from rl.types import Batch, Hyper
from rollout.types import Completion, SamplingParams

Message = tuple[str, tuple, dict[str, Any]]

_DATACLASSES: dict[str, Any] = {
    c.__name__: c for c in (Batch, Hyper, SamplingParams, Completion)
}
_LENGTH = 8  # bytes, little-endian, of the header before it
_KINDS = "biuf"  # of arrays: booleans, integers, floats


def encode(name: str, *args: Any, **kwargs: Any) -> bytes:
    """Returns the header's length, the header as JSON, and the arrays' bytes.

    In the header a JSON list is always tagged: `["list", [...]]`, `["tuple", [...]]`,
    `["dict", {...}]`, `["array", dtype, shape]`, `["dataclass", name, {...}]`.

    Raises:
      TypeError: a value of any other type.
    """
    arrays: list[bytes] = []

    def to_json(value: Any) -> Any:
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, list):
            return ["list", [to_json(x) for x in value]]
        if isinstance(value, tuple):
            return ["tuple", [to_json(x) for x in value]]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return ["dict", {key: to_json(x) for key, x in value.items()}]
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS:
            arrays.append(value.tobytes())
            return ["array", value.dtype.str, list(value.shape)]
        kind = type(value).__name__
        if kind in _DATACLASSES:
            fields = [field.name for field in dataclasses.fields(value)]
            return ["dataclass", kind, {f: to_json(getattr(value, f)) for f in fields}]
        raise TypeError(f"{name}: a message cannot hold a {kind}")

    header = json.dumps([name, to_json(list(args)), to_json(kwargs)]).encode()
    return b"".join([len(header).to_bytes(_LENGTH, "little"), header, *arrays])


def decode(message: bytes) -> Message:
    """Returns a message's name and arguments; a 0-d array becomes a NumPy scalar.

    Raises:
      ValueError: the bytes are not a message of `encode`.
    """
    start = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    cursor = start

    def from_json(value: Any) -> Any:
        nonlocal cursor
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise ValueError("an untagged dictionary")
            return value
        kind, *content = value
        if kind == "list":
            return [from_json(x) for x in content[0]]
        if kind == "tuple":
            return tuple(from_json(x) for x in content[0])
        if kind == "dict":
            return {key: from_json(x) for key, x in content[0].items()}
        if kind == "dataclass":
            fields = {key: from_json(x) for key, x in content[1].items()}
            return _DATACLASSES[content[0]](**fields)
        dtype = np.dtype(content[0])
        if kind != "array" or dtype.kind not in _KINDS:
            raise ValueError(f"a value of kind {kind!r}")
        array = np.frombuffer(message, dtype, int(np.prod(content[1])), cursor)
        cursor += array.nbytes
        return array.reshape(content[1])[()]

    try:
        name, args, kwargs = json.loads(message[_LENGTH:start])
        content = name, tuple(from_json(args)), from_json(kwargs)
        if not isinstance(name, str) or cursor != len(message):
            raise ValueError("its name is not text, or bytes are left")
        return content
    except (
        ValueError, TypeError, KeyError, AttributeError, IndexError, MemoryError
    ) as error:  # fmt: skip
        raise ValueError(f"not a message between processes: {error}") from None
