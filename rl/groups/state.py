"""Groups and arrays to JSON and back, bit for bit: what a checkpoint holds of them."""

import base64
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl.types import Group, Problem
from rollout.types import Completion


def to_json(value: Any) -> Any:
    """Return arrays, records, mappings and sequences as JSON."""
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


def restore_array(state: Mapping[str, str]) -> np.ndarray:
    data = base64.b64decode(state["data"])
    return np.frombuffer(data, state["dtype"]).copy()


def restore_completion(state: Mapping[str, Any]) -> Completion:
    return Completion(**_with_arrays(state))


def restore_group(state: Mapping[str, Any]) -> Group:
    problem = state["problem"] | {"answers": tuple(state["problem"]["answers"])}
    parts = {
        "problem": Problem(**problem),
        "completions": tuple(restore_completion(c) for c in state["completions"]),
        "components": _with_arrays(state["components"]),
        "rules": tuple(state["rules"]),
    }
    return Group(**_with_arrays(state) | parts)


def _with_arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    def part(value: Any) -> Any:
        is_array = isinstance(value, Mapping) and value.keys() == {"dtype", "data"}
        return restore_array(value) if is_array else value

    return {key: part(value) for key, value in state.items()}
