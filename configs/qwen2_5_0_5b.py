"""Qwen2.5-0.5B: the smallest of the family

Command:   python -m rl.train --config=configs/qwen2_5_0_5b.py:h100-1 --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  h100-1    one H100 80 GB
           v5e-8     TPU v5e, 2x4: 8 chips
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b
from configs.hardware import Choices, on_hardware

HARDWARE: Choices = {
    "h100-1": {
        "mesh.fsdp": 1,
        "model.remat": "dots",
        "batch.micro_tokens": 32768,
        "rollout.slots": 256,
    },
    "v5e-8": {"mesh.fsdp": 8, "batch.micro_tokens": 65536},
}


def get_config(hardware: str = "") -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-0.5B"
    c.rollout.slots = 64
    return on_hardware(c, hardware, HARDWARE)
