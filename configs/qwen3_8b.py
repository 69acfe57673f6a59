"""Qwen3-8B-Base: does the recipe carry to the next family?

Command:   python -m rl.train --config=configs/qwen3_8b.py:h100-8 --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  h100-8    8 x H100 80 GB
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b
from configs.hardware import Choices, on_hardware

# Its cache takes twice and a half what Qwen2.5-7B's does.
HARDWARE: Choices = {
    "h100-8": {**compass_thinker_7b.HARDWARE["h100-8"], "rollout.slots": 512}
}


def get_config(hardware: str = "") -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen3-8B-Base"
    return on_hardware(c, hardware, HARDWARE)
