"""Decides whether two answers are equivalent, within a budget of steps.

Start reading in `compare.same_answer`.
"""
