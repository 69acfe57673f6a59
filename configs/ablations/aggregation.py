"""How tokens are averaged; see `rl.groups.weights`.

`constant` divides by the longest completion that is allowed, so that its gradients are
smaller than those of the others. Adam hardly minds.
"""

from configs.ablation import Ablation, grid

ABLATION = Ablation(
    arms=grid({"objective.aggregation": ("token", "group", "sequence", "constant")}),
    reference="aggregation=token",
)
