"""Turns raw data sets into problems for reinforcement learning.

Start reading at `pipeline`. Data flow:

    sources (formats, evidence, sets) -> repair -> screen (verifiable, golds, noise,
    answers) -> decontaminate -> duplicates -> levels -> report
"""
