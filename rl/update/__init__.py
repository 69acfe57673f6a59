"""Implements the policy update: the loss, its gradient and the optimizer.

Input: a `TrainState` and micro-batches of packed rows (`rl.types.Batch`).
Output: the next `TrainState` and the statistics of the update.
Start reading at `step`. `losses` defines the surrogate losses, `objective` combines a
loss with its weights and penalties, and `head` computes log-probabilities.
"""
