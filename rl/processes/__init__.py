"""Starts JAX, connects the processes of a run, and ends them together.

Input: flags, the environment, signals, and an engine.
Output: engine calls that all processes make, and an exit status that all return.
Read `joint` first. `start` and `group` connect processes; `stopping` handles signals.
"""
