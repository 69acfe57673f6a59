"""Runs ablations: the runs of a grid, made once each, and what they show together.

Start reading at `study`, the runs; `execute` makes them, `report` reads and compares.
"""
