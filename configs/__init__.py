"""Configs: `base` holds every key with its default and a comment.

Enters: nothing; a config is a module with `get_config()`, given by `--config`.
Leaves: a `ConfigDict`, which `configs.base.from_config` checks and gives types.
Begin at `base`; the others are short deltas to it, or to each other. `reading` finds
and runs a config's file, `schema` holds its sections to the signatures that take them.
"""
