"""Qwen2.5-Math-1.5B: the math base in small

Command:   python -m rl.train --config=configs/qwen2_5_math_1_5b.py --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  One 80 GB GPU.
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b


def get_config() -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-Math-1.5B"
    c.batch.micro_tokens = 32768
    c.rollout.slots = 128
    return c
