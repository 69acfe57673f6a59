"""Collects the groups of a step and packs them into the batches of its updates.

Input: problems, a sampler and a reward.
Output: the filtered groups of a step, packed into rows (`rl.types.Batch`).
Start reading at `collect`. `draws` selects the problems, and `schedule` decides how far
ahead of the update completions are sampled.
"""
