"""Defines typed sections of a config, and checks values against their types.

The annotation of a key declares its allowed values, for example by a type, a `Literal`
of choices or a `Range`.
"""

import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Range:
    """Represents the numbers from `low` to `high`, without `low` itself if `open`.

    `str(range)` follows "must" in error messages, as in "must be at least 1".
    """

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
Decay = Annotated[float, Range(0, 0.999999)]  # Adam divides by 1 - decay


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class Section:
    """Makes its subclasses frozen dataclasses with keyword arguments."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)


def parse(cls: type[T], values: Any, name: str = "") -> T:
    """Creates a section from a dict of its values; `name` is the section's dotted key.

    A value becomes a section, or a tuple of sections, if this is the type of its key.
    Raises ValueError if a key is unknown, or a value does not fit its type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"config.{name}={values!r}: must be a dict")
    hints, above = typing.get_type_hints(cls), f"{name}." if name else ""
    typed = {k: _convert(v, hints.get(k), above + k) for k, v in values.items()}
    section: T = call(cls, name, typed)
    return section


def _convert(value: Any, hint: Any, name: str) -> Any:
    inner = next(iter(typing.get_args(hint)), None)
    if isinstance(hint, type) and issubclass(hint, Section):
        return parse(hint, value, name)
    if isinstance(hint, types.UnionType) and value is not None:
        return _convert(value, inner, name)
    if isinstance(value, list | tuple):
        if len(value) == 1 and isinstance(value[0], str):  # as in --config.KEY=a,b
            value = [part.strip() for part in value[0].split(",") if part.strip()]
        return tuple(_convert(v, inner, f"{name}[{i}]") for i, v in enumerate(value))
    if isinstance(value, Mapping):  # in JSON, the keys of objects are texts
        return {str(key): v for key, v in value.items()}
    return value


def check(section: str, values: Mapping[str, Any], function: Callable) -> None:
    """Checks the arguments in a config against the signature of a user's function.

    `values` has the arguments by name. `section` is the dotted key of `values` in the
    config, or empty. Raises ValueError if `values` is not a dict, the function does not
    have one of the arguments, or a value does not fit its argument's type.
    """
    if not hasattr(values, "items"):  # a ConfigDict is not a Mapping
        raise ValueError(f"config.{section}={values!r}: must be a dict")
    hints = typing.get_type_hints(
        function.__init__ if inspect.isclass(function) else function,
        include_extras=True,
    )
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in values.items():
        key = f"config.{section}.{name}" if section else f"config.{name}"
        if name not in parameters and not takes_any:
            kind = getattr(function, "__name__", repr(function))
            raise ValueError(
                f"{key}={value!r}: unknown key; remove it ({kind} has no such argument)"
            )
        if wrong := violation(value, hints.get(name, Any)):
            raise ValueError(f"{key}={value!r}: must {wrong}")


def call(function: Callable, section: str, values: Mapping[str, Any], **others) -> Any:
    """Calls a user's function with the arguments in a config, and with `others`.

    Raises ValueError if `check` fails, or if the function needs further arguments.
    """
    check(section, values, function)
    try:
        inspect.signature(function).bind(**values, **others)
    except TypeError as error:
        key = f"config.{section}" if section else "config"
        name = getattr(function, "__name__", repr(function))
        reason = str(error).removeprefix("inspect.Signature.bind() ")
        raise ValueError(f"{key}: {reason}; see the arguments of {name}") from None
    return function(**values, **others)


def violation(value: Any, hint: Any) -> str:
    """Returns what a value that does not fit a type hint must do; "" if it fits.

    Error messages add "must" before the result, such as "be at least 1".
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        if wrong := violation(value, arguments[0]):
            return wrong
        return "" if value in arguments[1] else str(arguments[1])
    if origin is Literal:
        choices = ", ".join(choice or "empty" for choice in arguments)
        return "" if value in arguments else f"be one of {choices}"
    if origin in (typing.Union, types.UnionType):
        each = [violation(value, argument) for argument in arguments]
        return "" if "" in each else " or ".join(each)
    if origin in (Sequence, tuple):
        if not isinstance(value, list | tuple):
            return "be a list"
        for entry in value:
            if wrong := violation(entry, arguments[0]):
                return f"have valid entries: {entry!r} must {wrong}"
        return ""
    if hint not in (int, float, str, bool, types.NoneType):
        return ""  # mappings are checked where they are used
    wanted = (int, float) if hint is float else hint
    fits = isinstance(value, wanted) and (hint is bool or not isinstance(value, bool))
    if fits and isinstance(value, float) and not math.isfinite(value):
        return "be finite"
    kind = "None" if hint is types.NoneType else f"of type {hint.__name__}"
    return "" if fits else f"be {kind}"


def config_json(config: Any) -> str:
    """Returns a ConfigDict or a config dataclass as JSON with sorted keys.

    Leaves out the fields of a dataclass that are None.
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        tree = dataclasses.asdict(
            config, dict_factory=lambda items: {k: v for k, v in items if v is not None}
        )
    else:
        tree = config.to_dict()
    return json.dumps(tree, indent=2, sort_keys=True)


def check_same(config: Any, of_leader: str) -> None:
    """Raises ValueError if this process and process 0 have different configs.

    `of_leader` is the config of process 0, as returned by `config_json`.
    """
    own = json.loads(config_json(config))
    for key, mine, other in differences(own, json.loads(of_leader)):
        raise ValueError(
            f"config.{key}={mine!r}: process 0 has {other!r}; start all processes with"
            " the same config"
        )


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """Lists `(dotted key, value in first, value in second)` where nested dicts differ.

    Ignores empty dicts. The value of a missing key is None.
    """
    a, b = flatten(first), flatten(second)
    keys = sorted(a.keys() | b.keys())
    return [(k, a.get(k), b.get(k)) for k in keys if a.get(k) != b.get(k)]


def flatten(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flattens nested dicts to one dict from dotted key to value; drops empty dicts."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves |= flatten(value, f"{above}{key}.")
        else:
            leaves[above + key] = value
    return leaves
