"""Trains Qwen2.5-14B with the recipe of Compass-Thinker-7B.

Command:   as in configs/compass_thinker_7b.py
Hardware:  h100-16   two nodes of 8 x H100 80 GB
           v5p-32    TPU v5p, 2x2x4: 16 chips
           h100-1-lora    one H100, adapters as in configs/compass_thinker_7b.py
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs.compass_thinker_7b import LORA, Choices, recipe

HARDWARE: Choices = {
    "h100-16": {"mesh.fsdp": 16, "batch.micro_tokens": 131072},
    "v5p-32": {"mesh.fsdp": 16, "batch.micro_tokens": 131072},
    "h100-1-lora": {
        **LORA,
        "mesh.fsdp": 1,
        "batch.micro_tokens": 8192,
        "rollout.slots": 12,
    },
}


def get_config(hardware: str = "") -> ConfigDict:
    return recipe("Qwen/Qwen2.5-14B", hardware, HARDWARE, slots=512)
