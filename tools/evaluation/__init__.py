"""Evaluates a model on benchmarks: samples, judges, reports and compares.

Start reading at `run`. Scoring itself is in `rl.evaluate`, which training also uses.
"""
