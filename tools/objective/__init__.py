"""Checks properties of an objective, for `tools.check_objective`.

`trial` packs completions into rows and runs an objective on them. `properties` checks a
loss. `corrections` checks the terms that the update adds to a loss.
"""
