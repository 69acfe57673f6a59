"""Compares group sizes with 256 completions per step and two updates per step."""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        f"group_size={size}": {
            "rollout.group_size": size,
            "batch.prompts_per_step": 256 // size,
            "batch.prompts_per_update": 128 // size,
        }
        for size in (4, 8, 16, 32)
    },
    reference="group_size=8",
)
