"""Checks properties of an objective, for `tools.check_objective`.

`trial` packs completions into rows and runs an objective on them. `properties` checks a
loss alone. `corrections` checks a loss together with what the update adds to it:
rejection, importance weights, a KL penalty and an entropy bonus.
"""
