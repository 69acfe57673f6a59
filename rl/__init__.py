"""Trains a policy: sample, judge, filter, pack, update, publish.

Read `loop` first, then `run`. `train` is the command; `types` defines the data types.
"""
