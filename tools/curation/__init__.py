"""From raw open data to problems fit for reinforcement learning.

Enters: JSONL or Parquet files of problems, or a hub's.
Leaves: problems.jsonl, what was dropped with its reasons, and a report.
Begin at `pipeline`. Data flows one way, a file per idea:

    sources -> repair -> (verifiable, noise, answers) -> decontaminate -> duplicates
            -> levels -> report

A *check* is a pure function of a row that returns the evidence for dropping it, or
None. Every check runs on every row, so a dropped row carries all reasons that apply;
only the verifier is asked last, of rows that nothing else speaks against.
"""
