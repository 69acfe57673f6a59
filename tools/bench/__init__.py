"""Measurements that the documentation quotes: `python -m tools.bench NAME`.

Enters: each submodule's flags, by its `add_arguments(parser)`.
Leaves: the dict that its `run(arguments)` returns, printed, and written with --json.
Begin at `__main__`, which names the submodules.
"""
