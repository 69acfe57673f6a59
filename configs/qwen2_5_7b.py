"""Trains Qwen2.5-7B with the recipe of Compass-Thinker-7B.

Command:   as in configs/compass_thinker_7b.py
Hardware:  as in configs/compass_thinker_7b.py
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs.compass_thinker_7b import HARDWARE, recipe


def get_config(hardware: str = "") -> ConfigDict:
    return recipe("Qwen/Qwen2.5-7B", hardware, HARDWARE)
