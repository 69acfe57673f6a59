"""Encodes the leader's commands to the followers in Flax's msgpack format.

A command is a name with arguments. Arguments are None, booleans, integers, floats,
text, NumPy arrays and scalars of these numbers, lists, tuples, dictionaries with text
keys, `Batch`, `Hyper`, `SamplingParams` or `Completion`. Decoding executes no code.
"""

import dataclasses
from typing import Any

import numpy as np
from flax import serialization

from rl.types import Batch, Hyper
from rollout.types import Completion, SamplingParams

Message = tuple[str, tuple, dict[str, Any]]

_DATACLASSES: dict[str, Any] = {
    c.__name__: c for c in (Batch, Hyper, SamplingParams, Completion)
}
_KIND, _CONTENT = "__kind__", "__content__"  # keys for types that msgpack lacks


def encode(name: str, *args: Any, **kwargs: Any) -> bytes:
    def to_plain(value: Any) -> Any:
        if isinstance(value, list):
            return [to_plain(x) for x in value]
        if isinstance(value, tuple):
            return {_KIND: "tuple", _CONTENT: to_plain(list(value))}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: to_plain(x) for key, x in value.items()}
        kind = type(value).__name__
        if kind in _DATACLASSES:
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return {_KIND: kind, _CONTENT: to_plain(fields)}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            return value
        if value is None or isinstance(value, str | bool | int | float):
            return value
        raise TypeError(
            f"command {name!r}: cannot send an argument of type {kind} to other"
            " processes; see rl/processes/messages.py for the supported types"
        )

    return serialization.msgpack_serialize(to_plain([name, list(args), kwargs]))


def decode(message: bytes) -> Message:
    """Returns the command in a message of `encode`; raises ValueError if invalid."""

    def from_plain(value: Any) -> Any:
        if isinstance(value, list):
            return [from_plain(x) for x in value]
        if not isinstance(value, dict):
            return value
        if _KIND not in value:
            return {key: from_plain(x) for key, x in value.items()}
        content = from_plain(value[_CONTENT])
        if value[_KIND] == "tuple":
            return tuple(content)
        return _DATACLASSES[value[_KIND]](**content)

    try:
        name, args, kwargs = from_plain(serialization.msgpack_restore(message))
        if not (isinstance(name, str) and isinstance(kwargs, dict)):
            raise TypeError("the command is not text, or its arguments are not a dict")
        return name, tuple(args), kwargs
    except (ValueError, TypeError, KeyError, AttributeError, MemoryError) as error:
        raise ValueError(
            f"received an invalid message from process 0 ({error}); start all processes"
            " with the same code"
        ) from None
