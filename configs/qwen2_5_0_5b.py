"""Trains Qwen2.5-0.5B with the recipe of Compass-Thinker-7B.

Command:   as in configs/compass_thinker_7b.py
Hardware:  h100-1    one H100 80 GB
           v5e-8     TPU v5e, 2x4: 8 chips
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs.compass_thinker_7b import Choices, recipe

HARDWARE: Choices = {
    "h100-1": {
        "mesh.fsdp": 1,
        "model.remat": "dots",
        "model.head_chunk": 4096,
        "batch.micro_tokens": 32768,
        "rollout.slots": 256,
    },
    "v5e-8": {"mesh.fsdp": 8, "batch.micro_tokens": 65536},
}


def get_config(hardware: str = "") -> ConfigDict:
    return recipe("Qwen/Qwen2.5-0.5B", hardware, HARDWARE, slots=64)
