"""Qwen2.5-Math-1.5B: the math base in small

Command:   python -m rl.train --config=configs/qwen2_5_math_1_5b.py:h100-1 --workdir=DIR
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
        "batch.micro_tokens": 16384,
        "rollout.slots": 256,
    },
    "v5e-8": {"mesh.fsdp": 8, "batch.micro_tokens": 65536},
}


def get_config(hardware: str = "") -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-Math-1.5B"
    c.rollout.slots = 128
    return on_hardware(c, hardware, HARDWARE)
