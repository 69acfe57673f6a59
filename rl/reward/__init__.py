"""Computes rewards by the verifier, user functions or sums of them. Start at `rewards`."""
