"""Implements the policy update. Start reading at `step`, then `objective`."""
