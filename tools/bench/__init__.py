"""Measurements that the documentation quotes: `python -m tools.bench NAME`.

Each submodule named in `__main__` has `add_arguments(parser)` and
`run(arguments) -> dict`; the dict is printed, and written with --json.
"""
