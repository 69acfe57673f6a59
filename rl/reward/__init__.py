"""Computes rewards by the verifier or user functions. Start reading at `rewards`."""
