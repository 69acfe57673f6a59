"""Judges an answer: equal to the gold, finished, and in the form that is due.

Begin with `contract.judge`.
"""
