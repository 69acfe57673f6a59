"""Trains Qwen2.5-14B as configs/compass_thinker_7b.py does Qwen2.5-Math-7B.

Hardware:  h100-16   two nodes of 8 x H100 80 GB
           v5p-32    TPU v5p, 2x2x4: 16 chips
           h100-1-lora    one H100, trains adapters
"""

from configs.compass_thinker_7b import LORA, Choices, make_get_config

_SIXTEEN_CHIPS = {"mesh.fsdp": 16, "batch.micro_tokens": 131072}
_ONE_CHIP = {"mesh.fsdp": 1, "batch.micro_tokens": 8192, "rollout.slots": 12}
HARDWARE: Choices = {
    "h100-16": _SIXTEEN_CHIPS,
    "v5p-32": _SIXTEEN_CHIPS,
    "h100-1-lora": LORA | _ONE_CHIP,
}
get_config = make_get_config("Qwen/Qwen2.5-14B", HARDWARE, slots=512)
