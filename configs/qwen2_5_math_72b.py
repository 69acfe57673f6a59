"""Trains Qwen2.5-Math-72B as configs/compass_thinker_7b.py does Qwen2.5-Math-7B.

Hardware:  h200-32   four nodes of 8 x H200 141 GB
"""

from configs.compass_thinker_7b import Choices, make_get_config

HARDWARE: Choices = {"h200-32": {"mesh.fsdp": 32, "batch.micro_tokens": 131072}}
get_config = make_get_config("Qwen/Qwen2.5-Math-72B", HARDWARE)
