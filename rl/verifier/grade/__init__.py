"""Judges an answer: equal to the gold, finished, and in the requested form.

Start reading in `contract.judge`.
"""
