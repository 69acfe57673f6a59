"""Measurements that the documentation quotes: `python -m tools.bench NAME`.

Each submodule that `__main__` names has `add_arguments(parser)` for its flags, and
`run(arguments)`, whose result is printed and written with --json.
"""
