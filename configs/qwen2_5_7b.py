"""Qwen2.5-7B, the general base: does the recipe carry beyond the math base?

Command:   python -m rl.train --config=configs/qwen2_5_7b.py --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  as of configs/compass_thinker_7b.py
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b


def get_config(hardware: str = "") -> ConfigDict:
    c = compass_thinker_7b.get_config(hardware)
    c.model.path = "Qwen/Qwen2.5-7B"
    return c
