"""Qwen2.5-Math-72B: the largest of the family

Command:   python -m rl.train --config=configs/qwen2_5_math_72b.py:h200-32
               --workdir=DIR --config.data.train=problems.jsonl
               --config.data.eval=math500.jsonl
Hardware:  h200-32   four nodes of 8 x H200 141 GB
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b
from configs.hardware import on_hardware

HARDWARE = {
    "h200-32": {"mesh.fsdp": 32, "batch.micro_tokens": 131072},
}


def get_config(hardware: str = "") -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-Math-72B"
    return on_hardware(c, hardware, HARDWARE)
