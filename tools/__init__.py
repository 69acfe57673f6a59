"""Provides the commands around training; see `python -m tools.NAME --help`.

Commands read and write folders and files: models, run folders (workdirs), problems and
completions. A bad flag or file ends a command with an error message.
Start reading at `evaluate`. Each subpackage serves one command or a few of them.
"""

from rl import packages

packages.check()
