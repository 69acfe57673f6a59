"""Evaluates a model on benchmarks: samples, judges, reports and compares.

The input is a model, benchmarks and the conditions of sampling. The output is a folder
with completions, verdicts, scores with intervals and an HTML page. Data flow:

    run -> files -> report -> pages
             |
             +----> compare

Sampling and scoring themselves are in `rl.evaluate`, which training also uses.
"""
