"""Runs ablations: trains each arm with each seed, then compares the arms."""
