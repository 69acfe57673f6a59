"""Compares 4 updates per step with 16.

The 16 updates are either four PPO epochs or smaller mini-batches.
"""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "4": {"batch.prompts_per_update": 8},
        "16_by_epochs": {"batch.prompts_per_update": 8, "batch.ppo_epochs": 4},
        "16_by_smaller_batches": {"batch.prompts_per_update": 2},
    },
    reference="4",
)
