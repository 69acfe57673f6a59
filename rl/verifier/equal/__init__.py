"""Decides whether two answers are equivalent; start reading in `compare`."""
