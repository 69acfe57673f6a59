"""Parses boxes and answers; start reading in `answers`."""
