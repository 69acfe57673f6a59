"""Converts dataclasses and arrays to JSON and back, bit for bit, for checkpoints."""

import base64
import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(value: Any) -> Any:
    """Converts 1-D arrays, dataclasses, dicts, lists and tuples to JSON."""

    def plain(value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            data = base64.b64encode(value.tobytes()).decode()
            return {"dtype": str(value.dtype), "data": data}
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}

    return json.loads(json.dumps(value, default=plain))


def from_json(kind: Any, value: Any) -> Any:
    """Converts a result of `to_json` to the type `kind`; for `list[X]`, to a tuple."""
    if isinstance(value, Mapping):
        if value.keys() == {"dtype", "data"}:
            data = base64.b64decode(value["data"])
            return np.frombuffer(data, value["dtype"]).copy()
        if not dataclasses.is_dataclass(kind):
            return {key: from_json(Any, part) for key, part in value.items()}
        hints = typing.get_type_hints(kind)
        parts = {key: from_json(hints[key], part) for key, part in value.items()}
        return kind(**parts)  # type: ignore[operator]
    if isinstance(value, list) and kind is not Any:
        of_parts, *_ = typing.get_args(kind) or (Any,)
        return tuple(from_json(of_parts, part) for part in value)
    return value
