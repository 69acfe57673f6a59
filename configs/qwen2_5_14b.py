"""Qwen2.5-14B: does the recipe carry to a larger model?

Command:   python -m rl.train --config=configs/qwen2_5_14b.py:h100-16 --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  h100-16   two nodes of 8 x H100 80 GB
           v5p-32    TPU v5p, 2x2x4: 16 chips
           h100-1-lora    one H100, adapters as in configs/compass_thinker_7b.py
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b
from configs.hardware import Choices, on_hardware

HARDWARE: Choices = {
    "h100-16": {"mesh.fsdp": 16, "batch.micro_tokens": 131072},
    "v5p-32": {"mesh.fsdp": 16, "batch.micro_tokens": 131072},
    "h100-1-lora": {
        **compass_thinker_7b.LORA,
        "mesh.fsdp": 1,
        "batch.micro_tokens": 8192,
        "rollout.slots": 64,
    },
}


def get_config(hardware: str = "") -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-14B"
    c.rollout.slots = 512
    return on_hardware(c, hardware, HARDWARE)
