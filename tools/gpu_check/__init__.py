"""Measurements for the first minutes on a GPU; see docs/results/gpu.md."""
