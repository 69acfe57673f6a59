"""Qwen2.5-0.5B: the smallest of the family

Command:   python -m rl.train --config=configs/qwen2_5_0_5b.py --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  One 24 GB GPU.
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b


def get_config() -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-0.5B"
    c.batch.micro_tokens = 16384
    c.rollout.slots = 64
    return c
