"""Converts dataclasses and arrays to JSON and back, bit for bit, for checkpoints."""

import base64
import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(value: Any) -> Any:
    """Converts 1-D arrays, dataclasses, mappings, lists and tuples to JSON."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": str(value.dtype), "data": data}
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: to_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    return value


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
        entries = [from_json(of_parts, part) for part in value]
        is_named = isinstance(kind, type) and hasattr(kind, "_fields")
        return kind(*entries) if is_named else tuple(entries)
    return value
