"""Evaluates a model on benchmarks: samples, judges, reports and compares.

`run` samples into the folder of an evaluation (`files`), `report` computes and renders
its results, and `compare` compares evaluations. Sampling and scoring themselves are in
`rl.evaluate`, which training also uses.
"""
