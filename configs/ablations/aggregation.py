"""Compares the ways to average token losses; see `rl.groups.packing`.

`constant` divides by the largest allowed response length, so its gradients are smaller
than those of the other arms. Adam's updates hardly depend on this scale.
"""

from configs.ablation import Ablation, grid

ABLATION = Ablation(
    arms=grid({"objective.aggregation": ("token", "group", "sequence", "constant")}),
    reference="aggregation=token",
)
