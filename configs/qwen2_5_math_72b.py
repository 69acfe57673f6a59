"""Trains Qwen2.5-Math-72B with the recipe of Compass-Thinker-7B.

Command:   as in configs/compass_thinker_7b.py
Hardware:  h200-32   four nodes of 8 x H200 141 GB
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs.compass_thinker_7b import Choices, recipe

HARDWARE: Choices = {"h200-32": {"mesh.fsdp": 32, "batch.micro_tokens": 131072}}


def get_config(hardware: str = "") -> ConfigDict:
    return recipe("Qwen/Qwen2.5-Math-72B", hardware, HARDWARE)
