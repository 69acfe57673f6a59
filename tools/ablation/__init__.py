"""Runs ablations: trains each arm with each seed, then compares the arms.

`study` lists the runs, `execute` trains them, `report` reads and compares the results.
"""
