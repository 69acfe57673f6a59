"""Evaluates a model on benchmarks: samples, judges, reports and compares.

Sampling and scoring themselves are in `rl.evaluate`, which training also uses.
"""
