"""Loads functions by name, including user functions as "module:function"."""

import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl.errors import user_code


def load_function(where: str, *, key: str) -> Callable[..., Any]:
    """Imports "module:function", or raises ValueError with `key` in its message."""
    module_name, _, name = where.partition(":")
    if module_name.endswith(".py"):
        stem = os.path.basename(module_name).removesuffix(".py")
        raise ValueError(
            f"{key}={where!r}: must name a module, not a file; write"
            f" '{stem}:{name}' and put the file into the folder of the config"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's file may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(
            f"{key}={where!r}: cannot be imported ({reason}); correct the name or the"
            " module"
        ) from None
    if not hasattr(module, name):
        # The file shows that another module of this name was found first.
        file = getattr(module, "__file__", None) or f"module {module_name!r}"
        raise ValueError(
            f"{key}={where!r}: {file} does not define {name!r}; correct the name"
        )
    return getattr(module, name)


def load_named(
    where: str, known: Mapping[str, Callable[..., Any]], *, key: str
) -> Callable[..., Any]:
    """Returns `known[where]`, or imports "module:function", as `load_function` does."""
    if ":" in where:
        return load_function(where, key=key)
    if where not in known:
        raise ValueError(
            f"{key}={where!r}: must be one of {', '.join(known)}, or 'module:function'"
        )
    return known[where]


def by_name(
    function: Callable[..., Any], known: Sequence[str], *, key: str
) -> Callable[..., Any]:
    """Returns a function that passes to `function` only the arguments that it names.

    Raises ValueError if an argument of `function` is not in `known`.
    """
    named = inspect.signature(function).parameters.keys()
    for name in sorted(named - {*known}):
        raise ValueError(
            f"{key}: unknown argument {name!r}; use only {', '.join(known)}"
        )
    call = user_code(key)(function)
    return lambda **given: call(**{name: given[name] for name in named})
