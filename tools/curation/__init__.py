"""Turns raw data sets into problems that are suitable for reinforcement learning.

Curation reads JSONL, JSON or Parquet files of problems. It writes problems.jsonl, the
dropped rows with reasons, and a report. Start reading at `pipeline`. Data flow:

    sources (formats, evidence, sets) -> repair -> screen (verifiable, golds, noise,
    answers) -> decontaminate -> duplicates -> levels -> report

A *check* is a pure function that returns details of a reason to drop a row, or None.
All checks run on every row, so a dropped row lists all their reasons. The one exception
is the check by the verifier, which runs last and skips rows that already have a reason.
Later steps may skip them too.
"""
