"""Checks properties of an objective, for `tools.check_objective`."""
