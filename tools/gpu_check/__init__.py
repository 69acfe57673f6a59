"""Checks correctness and measures speed on one GPU; see docs/results/gpu.md."""
