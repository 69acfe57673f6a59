"""Provides the commands around training; see `python -m tools.NAME --help`.

A bad flag or file ends a command with an error message. Start reading at `evaluate`.
"""

from rl import packages

packages.check()
