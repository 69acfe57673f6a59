"""Computes rewards by the verifier, user functions, or a sum. Start at `rewards`."""
