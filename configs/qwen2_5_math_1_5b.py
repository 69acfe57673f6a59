"""Trains Qwen2.5-Math-1.5B with the recipe of Compass-Thinker-7B.

Command:   as in configs/compass_thinker_7b.py
Hardware:  h100-1    one H100 80 GB
           v5e-8     TPU v5e, 2x4: 8 chips
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs.compass_thinker_7b import Choices, recipe
from configs.qwen2_5_0_5b import HARDWARE as SMALLER

HARDWARE: Choices = {
    **SMALLER,
    "h100-1": {**SMALLER["h100-1"], "batch.micro_tokens": 16384},
}


def get_config(hardware: str = "") -> ConfigDict:
    return recipe("Qwen/Qwen2.5-Math-1.5B", hardware, HARDWARE, slots=128)
