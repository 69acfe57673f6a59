"""Trains a policy: sample, judge, filter, pack, update, publish.

Input: a config, a base model and problems.
Output: a workdir with metrics, checkpoints and the trained model.
Read `loop` first. `train` is the command; `types` defines the data types.
"""
