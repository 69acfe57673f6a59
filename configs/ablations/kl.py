"""Compares training without a KL term to KL penalties against the base model."""

from configs.ablation import Ablation, grid

ABLATION = Ablation(
    arms={
        "none": {},
        **grid({"objective.kl_estimate": ("k3",),
                "objective.kl_penalty": (0.001, 0.01, 0.1)}),
        **grid({"objective.kl_estimate": ("k1",), "objective.kl_penalty": (0.01,)}),
    },
    reference="none",
)  # fmt: skip
