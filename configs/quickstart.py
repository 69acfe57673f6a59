"""Trains a tiny model to add numbers by reinforcement learning.

Command:   python -m rl.train --config=configs/quickstart.py --workdir=runs/quickstart
Hardware:  two CPU cores, no GPU, no download.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.steps = 200

    c.model.maker = "rl.problems.arithmetic:make_base"
    c.model.maker_args = dict(
        cache="runs/bases",
        hidden_size=64,
        layers=3,
        heads=2,  # head width 32, the smallest that vLLM supports on a CPU
        steps=600,
        batch=64,
        learning_rate=3e-3,
        slips=0.30,
        forgotten_carries=0.65,
        held_out=512,
        seed=0,
    )
    c.model.dtype = "float32"
    c.model.remat = "none"
    c.mesh.data = -1
    c.mesh.fsdp = 1

    c.data.train = c.data.eval = "rl.problems.arithmetic:problems"
    c.data.train_args = dict(split="train", held_out=512, seed=0)
    c.data.eval_args = dict(split="held_out", held_out=512, seed=0)
    c.data.template = "{problem}?\n"

    c.rollout.group_size = 8
    c.rollout.max_prompt_tokens = 8
    c.rollout.max_response_tokens = 40
    c.rollout.slots = 256

    c.batch.prompts_per_step = 32
    c.batch.prompts_per_update = 16
    c.batch.row_lengths = (128,)
    c.batch.micro_tokens = 2048

    # At 3e-4, training on samples that are one version old is much slower.
    c.schedule.learning_rate = 1e-4
    c.schedule.warmup_updates = 5

    c.eval.samples = 16
    c.eval.every_steps, c.eval.problems = 20, 64  # each takes one second
    c.export.dtype = "float32"
    return c
