"""Judges completions; start reading in `contract`."""
