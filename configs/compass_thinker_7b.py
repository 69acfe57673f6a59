"""Trains Qwen2.5-Math-7B with the recipe of Compass-Thinker-7B (arXiv 2508.08909).

Command:   python -m rl.train --config=configs/compass_thinker_7b.py:h100-8
               --workdir=DIR --config.data.train=problems.jsonl
               --config.data.eval=math500.jsonl
           `python -m tools.curate --config=configs/curate.py:recipe --out DIR` writes
           problems.jsonl: more than 30 thousand problems with levels 1 to 5.
Hardware:  h100-8    8 x H100 80 GB
           h100-4+4  8 x H100 80 GB: 4 train (CUDA_VISIBLE_DEVICES=0,1,2,3), 4 run vLLM
           v5p-16    TPU v5p, 2x2x2: 8 chips
           v5e-16    TPU v5e, 4x4: 16 chips
           h100-1-lora    one H100 80 GB, trains adapters (LORA)
           v5e-8-lora     TPU v5e, 2x4: 8 chips, trains adapters (LORA)
           docs/scaling.md lists the memory that the compilers of these chips report.
Score:     none yet; this configuration has not been run to its end. The paper reports
           AIME2024 40.0, AMC 65.0, MATH-500 82.9, Minerva 36.4, OlympiadBench 43.5.

The paper gives: no KL term, clip-higher, dynamic sampling, token-level loss, rewards of
+1 and -1, train batch 128, mini-batch 32, 16 updates per iteration, learning rate 1e-6,
4,096 tokens, temperature 1, top-p 1.

If train batch and mini-batch have verl's meaning, an iteration has 128 / 32 = 4
updates. `ppo_epochs=4` then gives the 16 updates; this is our interpretation.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from configs import base

Choices = Mapping[str, Mapping[str, Any]]

# The paper trains in stages but does not describe them, so these stages are our choice.
# At 128 prompts per step they train on about 7,700, 10,200 and 7,700 groups. Thus 30
# thousand problems last for most of the run although some groups are filtered out. A
# level starts again when all of its problems have been sampled.
# 1. Levels 1 to 3 with short responses: format and basic skill at low cost. The stage
#    ends early if a quarter of the groups is all right: such groups give no gradient.
# 2. All levels but the easiest, with the full response length.
# 3. Levels 3 to 5: more completions per prompt, because hard problems are rarely
#    solved; a higher upper clip bound, for exploration; half the learning rate.
STAGES = (
    {
        "name": "warm-up",
        "levels": {"1": 0.3, "2": 0.4, "3": 0.3},
        "steps": 60,
        "advance": {"metric": "solve_all", "at_least": 0.25, "window": 5},
        "max_response_tokens": 2048,
    },
    {
        "name": "core",
        "levels": {"2": 0.15, "3": 0.35, "4": 0.35, "5": 0.15},
        "steps": 80,
    },
    {
        "name": "hard",
        "levels": {"3": 0.15, "4": 0.4, "5": 0.45},
        "group_size": 32,
        "eps_high": 0.3,
        "learning_rate": 5e-7,
    },
)

# Our choice: adapters of rank 32 on all kernels, with ten times the learning rate of
# full training. "LoRA Without Regret" (Schulman et al., Thinking Machines, 2025) found
# this factor best for many models, and small ranks sufficient for RL.
LORA = {
    "model.lora.rank": 32,
    "schedule.learning_rate": 1e-5,
    "curriculum.stages": (*STAGES[:-1], {**STAGES[-1], "learning_rate": 5e-6}),
    "rollout.slots": 128,
}

# Mesh, micro-batch, remat and sampler by hardware, chosen with tools.plan; see
# docs/scaling.md. The default is an fsdp axis over all devices.
_EIGHT_CHIPS = {
    "mesh.fsdp": 8,
    "model.remat": "dots",
    "batch.micro_tokens": 131072,
    "rollout.slots": 1024,
}
HARDWARE: Choices = {
    "h100-8": _EIGHT_CHIPS,
    "h100-4+4": {
        "mesh.fsdp": 4,
        "batch.micro_tokens": 65536,
        "rollout.backend": "vllm",
        "rollout.schedule": "one_step_off",
    },
    "v5p-16": _EIGHT_CHIPS,
    "v5e-16": {"mesh.fsdp": 16, "batch.micro_tokens": 65536},
    "h100-1-lora": {**LORA, "mesh.fsdp": 1, "batch.micro_tokens": 16384},
    "v5e-8-lora": {**LORA, "mesh.fsdp": 8, "batch.micro_tokens": 32768},
}


def make_get_config(
    model: str, choices: Choices, *, slots: int = 256
) -> Callable[[str], ConfigDict]:
    """Returns the `get_config` of a file that applies the recipe to a base model.

    Args:
      model: a folder or a hub id.
      choices: for each hardware, values by dotted key of the config. Without hardware
        the config has the default mesh.
      slots: `rollout.slots`, unless `choices` sets it.
    """
    return functools.partial(_recipe, model, choices, slots)


def _recipe(model: str, choices: Choices, slots: int, hardware: str = "") -> ConfigDict:
    if hardware and hardware not in choices:
        raise ValueError(f"hardware {hardware!r}: must be one of {', '.join(choices)}")
    c = base.get_config()
    c.model.path = model
    c.rollout.slots = slots

    # Values of the paper.
    c.batch.prompts_per_step = 128
    c.batch.prompts_per_update = 32
    c.schedule.learning_rate = 1e-6
    c.rollout.temperature = 1.0  # top-p is always 1 in training
    c.objective.aggregation = "token"

    # Our choices, which the paper does not give.
    c.batch.ppo_epochs = 4  # 16 updates per step
    c.rollout.group_size = 16
    c.objective.eps_low = 0.2
    c.objective.eps_high = 0.28
    c.rollout.max_prompt_tokens = 1024  # prompt and response: the paper's 4,096
    c.rollout.max_response_tokens = 3072
    # The base model scores 50.6 on MATH-500 with this template and 69.0 without one
    # (arXiv 2503.20783). We use the template because it asks for a \boxed answer, which
    # the verifier reads.
    c.data.template = "qwen_math"
    c.schedule.warmup_updates = 10
    c.optimizer.weight_decay = 0.0
    c.curriculum.stages = STAGES
    c.steps = 200
    c.eval.every_steps = 20
    c.eval.samples = 4
    if hardware:
        c.update_from_flattened_dict(choices[hardware])
    return c


get_config = make_get_config("Qwen/Qwen2.5-Math-7B", HARDWARE)
