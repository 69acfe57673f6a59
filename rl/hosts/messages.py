"""What processes of a run say to each other, as bytes: stated types, and no code.

A message is a name with arguments. Reading one makes numbers, text, lists, tuples,
dictionaries, arrays and the carriers below, and can make nothing else.
"""

import dataclasses
import json
from typing import Any

import numpy as np

from rl.batches import compact
from rl.types import Batch, Hyper
from rollout.types import Completion, SamplingParams

Message = tuple[str, tuple, dict[str, Any]]

_CARRIERS = {c.__name__: c for c in (Batch, Hyper, SamplingParams, Completion)}
_LENGTH = 8  # bytes, little-endian, of the header before it


def encode(name: str, *args: Any, **kwargs: Any) -> bytes:
    """A message: the header's length, the header as JSON, the arrays' bytes.

    In the header a JSON list is always tagged: `["list", [...]]`, `["tuple", [...]]`,
    `["dict", {...}]`, `["array", dtype, shape]`, `["carrier", name, {...}]`. An array
    that `rl.batches.compact` finds smaller is `["runs", dtype, shape, number of runs]`.

    Raises:
      TypeError: a value of any other type.
    """
    arrays: list[np.ndarray] = []

    def plain(value):
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, list):
            return ["list", [plain(x) for x in value]]
        if isinstance(value, tuple):
            return ["tuple", [plain(x) for x in value]]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return ["dict", {key: plain(x) for key, x in value.items()}]
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            parts = compact.encode(value)
            arrays.extend(parts.values())
            said = [value.dtype.str, list(value.shape)]
            if "bits" in parts:
                return ["array", *said]
            return ["runs", *said, len(parts["starts"])]
        if type(value).__name__ in _CARRIERS:
            fields = {
                field.name: plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
            return ["carrier", type(value).__name__, fields]
        raise TypeError(f"{name}: a message holds no {type(value).__name__}")

    header = json.dumps([name, plain(list(args)), plain(kwargs)]).encode()
    parts = [len(header).to_bytes(_LENGTH, "little"), header]
    return b"".join(parts + [array.tobytes() for array in arrays])


def decode(message: bytes | bytearray) -> Message:
    """A message's name and arguments; a 0-d array becomes a NumPy scalar.

    Raises:
      ValueError: it is none that `encode` writes.
    """
    start = _LENGTH + int.from_bytes(message[:_LENGTH], "little")
    cursor = start

    def value(plain):
        nonlocal cursor
        if not isinstance(plain, list):
            if isinstance(plain, dict):
                raise ValueError("an untagged dictionary")
            return plain
        kind, *content = plain
        if kind == "list":
            return [value(x) for x in content[0]]
        if kind == "tuple":
            return tuple(value(x) for x in content[0])
        if kind == "dict":
            return {key: value(x) for key, x in content[0].items()}
        if kind == "carrier":
            fields = {key: value(x) for key, x in content[1].items()}
            return _CARRIERS[content[0]](**fields)
        if kind not in ("array", "runs"):
            raise ValueError(f"a value of kind {kind!r}")
        dtype, shape = np.dtype(content[0]), tuple(content[1])
        if dtype.kind not in "biuf":
            raise ValueError(f"an array of {dtype}")
        bits = np.dtype(f"u{dtype.itemsize}")
        if kind == "array":
            parts = {"bits": part(bits, int(np.prod(shape)))}
        else:
            count = content[2]
            parts = {"starts": part(np.uint32, count), "steps": part(bits, count)}
        return compact.decode(parts, shape, dtype)[()]

    def part(dtype, count: int) -> np.ndarray:
        nonlocal cursor
        array = np.frombuffer(message, dtype, count, cursor)
        cursor += array.nbytes
        return array

    try:
        name, args, kwargs = json.loads(message[_LENGTH:start])
        if not isinstance(name, str):
            raise ValueError("a name that is no text")
        content = name, tuple(value(args)), value(kwargs)
        if cursor != len(message):
            raise ValueError(f"{len(message) - cursor} bytes too many")
        return content
    except (
        ValueError, TypeError, KeyError, AttributeError, IndexError, MemoryError
    ) as error:  # fmt: skip
        raise ValueError(f"no message of a run's processes ({error})") from None
