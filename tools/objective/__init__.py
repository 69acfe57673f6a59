"""Checks of an objective, for `tools.check_objective`.

Enters: a config, whose `objective` is checked.
Leaves: a `Finding` for each property.
Begin at `properties`, of a loss; `corrections` checks what the update adds to one.
"""
