"""The machines of a run: devices, processes, signals.

Enters: an engine, and how many devices and processes there are.
Leaves: calls that all processes make together, and an end that takes all along.
Begin at `multihost`; `peers` connects processes.
"""
