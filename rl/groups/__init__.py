"""From completions to the arrays of an update.

Enters: problems, a sampler, a reward.
Leaves: a step's groups, filtered and exactly full, packed into a `Batch` of rows.
Begin at `collect`; `draws` says of which problems, `schedule` how far ahead of the
update.
"""
