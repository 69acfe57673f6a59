"""Trains Qwen3-8B-Base as configs/compass_thinker_7b.py does Qwen2.5-Math-7B.

Hardware:  h100-8    8 x H100 80 GB
"""

from configs.compass_thinker_7b import HARDWARE, Choices, make_get_config

# The key-value cache of this model is 2.6 times as large as that of Qwen2.5-7B.
CHOICES: Choices = {"h100-8": {**HARDWARE["h100-8"], "rollout.slots": 512}}
get_config = make_get_config("Qwen/Qwen3-8B-Base", CHOICES)
