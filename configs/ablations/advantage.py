"""Compares the built-in advantages; see `rl.groups.advantages`."""

from configs.ablation import Ablation, grid

ABLATION = Ablation(
    arms=grid(
        {"objective.advantage": ("std", "mean", "batch_std", "maxrl", "leave_one_out")}
    ),
    reference="advantage=std",
)
