"""Functions of the user's, by name."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def load_function(where: str, *, key: str) -> Callable[..., Any]:
    """Imports "module:function"; `key` is the config's name for it in an error."""
    module_name, _, name = where.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except Exception as error:  # a user's file may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{key}={where!r}: cannot be imported ({reason})") from None


def load_named(
    where: str, known: Mapping[str, Callable[..., Any]], *, key: str
) -> Callable[..., Any]:
    """Return a known function by its name, or a user's by "module:function"."""
    if ":" in where:
        return load_function(where, key=key)
    if where not in known:
        raise ValueError(
            f"{key}={where!r}: must be one of {', '.join(known)}, or 'module:function'"
        )
    return known[where]


def argument_names(
    function: Callable[..., Any], known: Sequence[str], *, key: str
) -> frozenset[str]:
    """Return the arguments that a function names in its signature.

    Raises:
      ValueError: one is not known; `key` says in the error where the function is named.
    """
    named = inspect.signature(function).parameters.keys()
    for name in sorted(named - {*known}):
        raise ValueError(f"{key}: takes {name!r}, which is none of {', '.join(known)}")
    return frozenset(named)
