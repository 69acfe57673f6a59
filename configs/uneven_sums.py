"""Trains the quickstart's model on 400 problems, 60% of which give no gradient.

Command:   python -m rl.train --config=configs/uneven_sums.py --workdir=runs/uneven
Hardware:  two CPU cores, no GPU, no download.
"""

from ml_collections import ConfigDict

from configs import quickstart


def get_config() -> ConfigDict:
    c = quickstart.get_config()
    c.steps = 100
    c.data.train = "rl.problems.arithmetic:uneven_problems"
    c.data.train_args = dict(count=400, easy=0.3, hard=0.3, held_out=512, seed=0)
    c.rollout.slots = 128
    c.batch.prompts_per_step = 16
    c.dynamic_sampling.max_rounds = 20
    c.eval.every_steps = 10
    c.eval.samples = 2
    c.eval.greedy = False
    return c
