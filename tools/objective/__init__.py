"""Checks of an objective, for `tools.check_objective`.

`trial` lays completions out in rows and runs an objective on them; `properties` checks
a loss with it, and `corrections` what the update adds to a loss.
"""
