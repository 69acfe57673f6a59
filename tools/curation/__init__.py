"""Turns raw data sets into problems that are suitable for reinforcement learning.

Curation reads JSONL, JSON or Parquet files of problems. It writes problems.jsonl, the
dropped rows with reasons, and a report. Start reading at `pipeline`. Data flow:

    sources (formats, evidence, sets) -> repair -> screen (verifiable, golds, noise,
    answers) -> decontaminate -> duplicates -> levels -> report

A *check* is a pure function that returns details of a reason to drop a row, or None.
Each check runs on every row, so a dropped row lists the reasons of all checks. Only
`unverifiable_answer`, which runs last, skips rows that already have a reason.
"""
