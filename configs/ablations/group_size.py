"""How many completions of one problem? A step draws 256 of them, in two updates."""

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
