"""Ablations: runs of a grid, made once each, and what they say together.

Enters: an `Ablation` (`configs.ablation`) and a folder for its runs.
Leaves: each run's workdir, and a report with means, intervals and tests.
Begin at `study`, the runs; `execute` makes them, `figures` reads one, `compare` all.
"""
