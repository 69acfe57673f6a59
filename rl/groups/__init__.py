"""Collects a step's groups and packs them into rows. Start reading at `collect`."""
