"""Trains a policy: sample, judge, filter, pack, update, publish.

Read `loop` first. `train` is the command; `types` defines the data types.
"""
