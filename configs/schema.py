"""A config's schema: the signatures that take its keys, and it is held to them.

A section of the config goes to the functions that take its keys, as keyword arguments.
What a key may be stands in their signatures: a type, a `Literal` of choices, a range,
a sequence of any of these.
"""

import dataclasses
import functools
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from ml_collections import ConfigDict


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, or above `low` where that is `open`."""

    low: float
    high: float = math.inf
    open: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.open and value == self.low)

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"lie in {'(' if self.open else '['}{self.low:g}, {self.high:g}]"
        return f"be above {self.low:g}" if self.open else f"be at least {self.low:g}"


class Filled:
    """Sequences that have an entry."""

    def __contains__(self, value: Sequence[Any]) -> bool:
        return len(value) > 0

    def __str__(self) -> str:
        return "have an entry"


Count = Annotated[int, Range(1)]
Index = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


def check(section: str, values: Mapping[str, Any], *takers: Callable) -> None:
    """Holds a section to the signatures of the functions that will take its keys.

    Raises:
      ValueError: a key that none of them takes, or a value that the first to take it
        cannot; one line with the key, the value, and what it must be.
    """
    hints = [_hints(taker) for taker in takers]
    for name, value in values.items():
        key = f"config.{section}.{name}" if section else f"config.{name}"
        hint = next((own[name] for own in hints if name in own), None)
        if hint is None:
            raise ValueError(f"{key}={value!r}: unknown key")
        if wrong := _wrong(value, hint):
            raise ValueError(f"{key}={value!r}: must {wrong}")


def take(taker: Callable, *sections: Mapping[str, Any], **others) -> Callable:
    """`taker` with what it takes of some sections, and `others`, filled in."""
    names = inspect.signature(taker).parameters
    taken = {k: v for part in sections for k, v in part.items() if k in names}
    return functools.partial(taker, **taken, **others)


def call(function: Callable, section: str, values: Mapping[str, Any], **others) -> Any:
    """Calls a user's function with its section, and `others` beside it.

    Raises:
      ValueError: as of `check`, or a key that is missing.
    """
    check(section, values, function)
    try:
        inspect.signature(function).bind(**values, **others)
    except TypeError as error:
        key = f"config.{section}" if section else "config"
        raise ValueError(f"{key}: {error}") from None
    return function(**values, **others)


def _hints(taker: Callable) -> dict[str, Any]:
    """What a function, or a class when it is made, says of each keyword argument."""
    made = taker.__init__ if inspect.isclass(taker) else taker
    hints = typing.get_type_hints(made, include_extras=True)
    return {name: hints.get(name, Any) for name in inspect.signature(taker).parameters}


def _wrong(value: Any, hint: Any) -> str:
    """What `value` must be to fit `hint`, or nothing where it does."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        if wrong := _wrong(value, arguments[0]):
            return wrong
        return "" if value in arguments[1] else str(arguments[1])
    if origin is Literal:
        return "" if value in arguments else f"be one of {', '.join(arguments)}"
    if origin in (typing.Union, types.UnionType):
        each = [_wrong(value, argument) for argument in arguments]
        return "" if "" in each else " or ".join(each)
    if origin is Sequence:
        if not isinstance(value, list | tuple):
            return "be a list"
        entries = (_wrong(entry, arguments[0]) for entry in value)
        return next((f"each {said}" for said in entries if said), "")
    if hint is types.NoneType:
        return "" if value is None else "be None"
    if hint not in (int, float, str, bool):
        return ""  # mappings are read by whom they are for
    wanted = (int, float) if hint is float else hint
    fits = isinstance(value, wanted) and (hint is bool or not isinstance(value, bool))
    return "" if fits else f"be of type {hint.__name__}"


def config_json(config: ConfigDict) -> str:
    return json.dumps(config.to_dict(), indent=2, sort_keys=True)


def check_same(config: ConfigDict, of_leader: str) -> None:
    """Holds this process's config to the leader's, given as JSON.

    Raises:
      ValueError: they differ; names the first key that does.
    """
    own = json.loads(config_json(config))
    for key, mine, other in differences(own, json.loads(of_leader)):
        raise ValueError(f"config.{key}={mine!r}: the leader has {other!r}")


def changes(config: Mapping[str, Any], base: ConfigDict) -> dict[str, Any]:
    """What a config as JSON says other than `base`, by dotted key."""
    before = flatten(json.loads(config_json(base)))
    own = flatten(config)
    return {k: v for k, v in own.items() if k not in before or before[k] != v}


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """(dotted key, first, second) of each leaf that differs; None where it is not."""
    a, b = flatten(first), flatten(second)
    keys = sorted(a.keys() | b.keys())
    return [(k, a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k)]


def flatten(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Leaves of nested sections by their dotted names."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves |= flatten(value, f"{above}{key}.")
        else:
            leaves[above + key] = value
    return leaves
