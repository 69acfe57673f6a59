"""Turns open data into problems fit for reinforcement learning.

Reads JSONL, JSON or Parquet files of problems; writes problems.jsonl, the dropped rows
with their reasons, and a report. Start reading at `pipeline`. Data flows one way:

    sources (formats, evidence, sets) -> repair -> screen (verifiable, golds, noise,
    answers) -> decontaminate -> duplicates -> levels -> report

A *check* is a pure function of a row that returns why the row should be dropped, or
None. Every check runs on every row, so a dropped row has all reasons that apply; the
verifier is asked last, about rows without a reason so far.
"""
