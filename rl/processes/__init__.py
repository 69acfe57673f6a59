"""Starts JAX, connects the processes of a run, and ends them together.

Enters: flags, the environment, signals, and an engine.
Leaves: engine calls that all processes make, and one exit status for all.
Begin at `joint`; `start` and `group` connect processes, `stopping` handles signals.
"""
