"""Trains Qwen2.5-Math-1.5B as configs/compass_thinker_7b.py does Qwen2.5-Math-7B.

Hardware:  as in configs/qwen2_5_0_5b.py
"""

from configs.compass_thinker_7b import Choices, make_get_config
from configs.qwen2_5_0_5b import HARDWARE as SMALLER

_ONE_CHIP = {**SMALLER["h100-1"], "batch.micro_tokens": 16384}
HARDWARE: Choices = {**SMALLER, "h100-1": _ONE_CHIP}
get_config = make_get_config("Qwen/Qwen2.5-Math-1.5B", HARDWARE, slots=128)
