"""Typed sections of a config, and the check that values fit their types.

A key's annotation says what it may be: a type, a `Literal` of choices, a range, a tuple
of any of these. Arguments of a user's function are checked against its signature.
"""

import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, or above `low` where that is `open`."""

    low: float
    high: float = math.inf
    open: bool = False

    def __contains__(self, value: float) -> bool:
        low = value > self.low if self.open else value >= self.low
        return low and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"lie in {'(' if self.open else '['}{self.low:g}, {self.high:g}]"
        return f"be above {self.low:g}" if self.open else f"be at least {self.low:g}"


Count = Annotated[int, Range(1)]
Index = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


Section = TypeVar("Section")


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def section(cls: type[Section]) -> type[Section]:
    """Make a class a section of the config: a frozen dataclass of keywords."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


def parse(
    cls: type[Section], values: Mapping[str, Any], above: str = "config"
) -> Section:
    """Return a section with the given values.

    Args:
      cls: the section; every one of its keys must be given.
      values: by key; those of a section within it are mappings.
      above: the section's name, for errors.

    Raises:
      ValueError: an unknown or missing key, or a value that does not fit; one line with
        the key, the value, and what it must be.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    if unknown := sorted(values.keys() - hints.keys()):
        key = unknown[0]
        raise ValueError(f"{above}.{key}={values[key]!r}: unknown key")
    if missing := [key for key in hints if key not in values]:
        raise ValueError(f"{above}.{missing[0]}: missing key")
    typed: dict[str, Any] = {}
    for key, hint in hints.items():
        name, value = f"{above}.{key}", values[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ValueError(f"{name}={value!r}: must be a section")
            typed[key] = parse(cast(type, hint), value, name)
        elif wrong := _wrong(value, hint):
            raise ValueError(f"{name}={value!r}: must {wrong}")
        else:
            typed[key] = tuple(value) if isinstance(value, list) else value
    return cls(**typed)


def check(section: str, values: Mapping[str, Any], function: Callable) -> None:
    """Check a user's arguments against the signature of the function that takes them.

    Raises:
      ValueError: an argument that it does not take, or a value that does not fit; one
        line with the key, the value, and what it must be.
    """
    hints = typing.get_type_hints(
        function.__init__ if inspect.isclass(function) else function,
        include_extras=True,
    )
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in values.items():
        key = f"config.{section}.{name}" if section else f"config.{name}"
        if name not in parameters and not takes_any:
            raise ValueError(f"{key}={value!r}: unknown key")
        if wrong := _wrong(value, hints.get(name, Any)):
            raise ValueError(f"{key}={value!r}: must {wrong}")


def call(function: Callable, section: str, values: Mapping[str, Any], **others) -> Any:
    """Call a user's function with its section and with `others`.

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


def _wrong(value: Any, hint: Any) -> str:
    """Return what `value` must be to fit `hint`; empty if it does."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        if wrong := _wrong(value, arguments[0]):
            return wrong
        if isinstance(value, float) and not math.isfinite(value):
            return "be finite"
        return "" if value in arguments[1] else str(arguments[1])
    if origin is Literal:
        return "" if value in arguments else f"be one of {', '.join(arguments)}"
    if origin in (typing.Union, types.UnionType):
        each = [_wrong(value, argument) for argument in arguments]
        return "" if "" in each else " or ".join(each)
    if origin in (Sequence, tuple):
        if not isinstance(value, list | tuple):
            return "be a list"
        entries = (_wrong(entry, arguments[0]) for entry in value)
        return next((f"each {said}" for said in entries if said), "")
    if hint not in (int, float, str, bool, types.NoneType):
        return ""  # a mapping, which its reader checks
    wanted = (int, float) if hint is float else hint
    fits = isinstance(value, wanted) and (hint is bool or not isinstance(value, bool))
    return "" if fits else f"be of type {hint.__name__}"


def config_json(config: Any) -> str:
    """Return a config, a ConfigDict or its dataclass, as JSON with sorted keys."""
    is_typed = dataclasses.is_dataclass(config) and not isinstance(config, type)
    tree = dataclasses.asdict(config) if is_typed else config.to_dict()
    return json.dumps(tree, indent=2, sort_keys=True)


def check_same(config: Any, of_leader: str) -> None:
    """Compare this process's config with the leader's, given as JSON.

    Raises:
      ValueError: they differ; names the first key that does.
    """
    own = json.loads(config_json(config))
    for key, mine, other in differences(own, json.loads(of_leader)):
        raise ValueError(f"config.{key}={mine!r}: the leader has {other!r}")


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """Return (dotted key, first, second) of each leaf that differs; None: missing."""
    a, b = flatten(first), flatten(second)
    keys = sorted(a.keys() | b.keys())
    return [(k, a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k)]


def flatten(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the leaves of nested sections by their dotted names."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves |= flatten(value, f"{above}{key}.")
        else:
            leaves[above + key] = value
    return leaves
