"""Defines the configs of runs: `base` declares every key with its default and meaning.

A config is a Python file with `get_config()`, which returns a `ConfigDict`; commands
take its path by `--config`. `configs.base.from_config` checks the ConfigDict and
converts it to dataclasses. Read `base` first: the other configs change a few of its
keys. `reading` runs config files, `schema` and `checks` check the values.
"""
