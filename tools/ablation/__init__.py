"""Runs ablations: trains each arm with each seed, then compares the arms.

`study` lists the runs, `execute` trains them, `report` reads their results, and
`compare` computes means, intervals and p-values.
"""
