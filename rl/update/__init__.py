"""The update: a packed batch in, new parameters out.

Enters: a `TrainState` and a `Batch` of rows.
Leaves: the next `TrainState`, and the statistics of the update.
Begin at `step`; the loss is one of `losses`, what is made of it `objective`, the
log-probabilities under it `head`.
"""
