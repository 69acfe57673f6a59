"""Judges whether an answer equals a gold, is finished and is not a copy.

Start reading in `contract.judge`.
"""
