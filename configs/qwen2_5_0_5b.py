"""Trains Qwen2.5-0.5B as configs/compass_thinker_7b.py does Qwen2.5-Math-7B.

Hardware:  h100-1    one H100 80 GB
           v5e-8     TPU v5e, 2x4: 8 chips
"""

from configs.compass_thinker_7b import Choices, make_get_config

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
get_config = make_get_config("Qwen/Qwen2.5-0.5B", HARDWARE, slots=64)
