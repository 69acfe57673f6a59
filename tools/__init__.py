"""Commands around training, each `python -m tools.NAME --help`.

Enters: folders and files: a model, a workdir, problems, completions.
Leaves: folders and files, and one line for what is wrong with what was given.
Begin at `evaluate`; what only commands need is in the rooms beside them.
"""

from rl import packages

packages.check()
