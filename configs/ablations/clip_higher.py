"""Compares upper clip bounds. Compass-Thinker's paper gives none; DAPO uses 0.28."""

from configs.ablation import Ablation, grid

ABLATION = Ablation(
    arms=grid({"objective.eps_high": (0.20, 0.24, 0.28, 0.32, 0.36, 0.40)}),
    reference="eps_high=0.28",
)
