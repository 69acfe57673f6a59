"""Starts JAX, connects the processes of a run, and ends them together.

Read `joint` first. `start` and `group` connect processes; `stopping` handles signals.
"""
