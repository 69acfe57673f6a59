"""Compares the ways to average token losses; see `rl.groups.packing`.

`constant` divides the loss of every completion by the largest allowed length, not by
its own length. Gradients are therefore smaller than in the other arms. Adam's updates
hardly depend on this scale.
"""

from configs.ablation import Ablation, grid

ABLATION = Ablation(
    arms=grid({"objective.aggregation": ("token", "group", "sequence", "constant")}),
    reference="aggregation=token",
)
