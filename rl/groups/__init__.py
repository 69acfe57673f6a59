"""Collects the groups of a step, and packs them into rows. `collect` comes first."""
