"""Trains Qwen3-8B-Base with the recipe of Compass-Thinker-7B.

Command:   as in configs/compass_thinker_7b.py
Hardware:  h100-8    8 x H100 80 GB
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs.compass_thinker_7b import HARDWARE, Choices, recipe

# The key-value cache of this model is 2.6 times as large as that of Qwen2.5-7B.
CHOICES: Choices = {"h100-8": {**HARDWARE["h100-8"], "rollout.slots": 512}}


def get_config(hardware: str = "") -> ConfigDict:
    return recipe("Qwen/Qwen3-8B-Base", hardware, CHOICES)
