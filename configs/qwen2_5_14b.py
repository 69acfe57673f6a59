"""Qwen2.5-14B: does the recipe carry to a larger model?

Command:   python -m rl.train --config=configs/qwen2_5_14b.py --workdir=DIR
               --config.data.train=problems.jsonl --config.data.eval=math500.jsonl
Hardware:  16 x 80 GB, or a v5p-32 slice.
Score:     none yet; this configuration has not been run to its end.
"""

from ml_collections import ConfigDict

from configs import compass_thinker_7b


def get_config() -> ConfigDict:
    c = compass_thinker_7b.get_config()
    c.model.path = "Qwen/Qwen2.5-14B"
    c.batch.micro_tokens = 65536
    c.rollout.slots = 256
    return c
