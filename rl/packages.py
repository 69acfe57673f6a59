"""Checks that imports find the project's packages, not others of the same names."""

import importlib.util
import pathlib
import sys

NAMES = ("configs", "models", "rl", "rollout", "sharding", "tools")


def check() -> None:
    """Exits with a message if another package hides one of the project's packages.

    Call `check` before importing these packages. A command imports from the current
    directory first, and `configs` and `models` are common names of folders.
    """
    root = pathlib.Path(__file__).resolve().parents[1]
    for name in NAMES:
        spec = importlib.util.find_spec(name)
        if not spec:
            sys.exit(
                f"error: Python finds no package {name!r}: run from {root}, or install"
                " the project again"
            )
        places = list(spec.submodule_search_locations or ())
        if root / name not in [pathlib.Path(place).resolve() for place in places]:
            found = places[0] if places else spec.origin
            sys.exit(
                f"error: Python finds package {name!r} at {found}, not at"
                f" {root / name}: run from another directory, or rename the first path"
            )
