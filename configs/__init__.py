"""Defines the configs of runs: Python files with `get_config()`.

Read `base` first: it declares every key with its default and meaning, and the other
configs change a few of them.
"""
