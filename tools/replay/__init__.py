"""A bad step again, from the dump of a run: `python -m tools.replay DUMP`.

Enters: a dump of the flight recorder (`rl.workdir.recorder`).
Leaves: whether each update came out bit for bit, and where the bad one went wrong.
Begin at `__main__`; `blame` finds the completion, `origin` the tensor.
"""
