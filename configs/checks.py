"""Checks keys of a config against each other."""

import math
import re
from operator import attrgetter
from typing import Literal

from configs.base import RunConfig

_VERIFIER_FIRST = re.compile(r"\s*[+-]?\s*([\d.eE+-]+\s*\*\s*)?verifier(?![\w.:])")


def check_config(c: RunConfig, *, needs_data: bool = True) -> None:
    """Checks keys of a config against each other; reads neither the model nor the data.

    `needs_data` says whether `data.train` must be set.

    Raises ValueError with a one-line message: a key, its value, and what to do.
    """

    b, d, r, o = c.batch, c.dynamic_sampling, c.rollout, c.optimizer
    steps, rank = c.profile.steps, c.model.lora.rank
    decays, updates = c.schedule.decay != "constant", c.steps * updates_per_step(c)
    until_zero = c.schedule.warmup_updates + c.schedule.decay_updates
    limits = [s.max_response_tokens or 0 for s in c.curriculum.stages]
    shortest = min(filter(None, limits), default=r.max_response_tokens)
    # Whether the config is wrong, the key that the message names, and the reason.
    rules = (
        (not b.row_lengths, "batch.row_lengths",
         "must have at least one entry, a length in tokens"),
        (max(b.row_lengths, default=0) < r.max_prompt_tokens + r.max_response_tokens,
         "batch.row_lengths",
         "the longest must be at least config.rollout.max_prompt_tokens="
         f"{r.max_prompt_tokens} + max_response_tokens={r.max_response_tokens}"),
        (b.prompts_per_step % b.prompts_per_update, "batch.prompts_per_step",
         "must be a multiple of"
         f" config.batch.prompts_per_update={b.prompts_per_update}"),
        (needs_data and not c.data.train, "data.train",
         'must be JSONL files or "module:function"'),
        (r.schedule != "sync" and r.backend == "jax", "rollout.schedule",
         "config.rollout.backend='jax' cannot sample during an update, because it"
         " uses the same devices; set backend='vllm' or schedule='sync'"),
        (r.vllm.publish == "adapter" and not 0 < rank <= 512, "rollout.vllm.publish",
         f"needs config.model.lora.rank from 1 to 512, not {rank}"),
        (d.carry and c.reward.shuffle, "reward.shuffle",
         "cannot be combined with config.dynamic_sampling.carry=True, because groups"
         " of a round may then end in different steps; set one of them to False"),
        (c.sampling.policy != "uniform" and (not d.filter or d.filter_on == "reward"),
         "sampling.policy",
         "needs config.dynamic_sampling.filter=True and filter_on 'correct' or"
         f" 'auto', not filter={d.filter} and filter_on={d.filter_on!r}"),
        (o.function == "adamw" and o.moments_dtype == "bfloat16" and o.b2 > 0.99,
         "optimizer.b2",
         "must be at most 0.99 with config.optimizer.moments_dtype='bfloat16', which"
         " rounds smaller changes of the second moment to zero"),
        (decays and not c.schedule.decay_updates, "schedule.decay",
         "needs config.schedule.decay_updates, the number of updates between the end"
         " of the warm-up and a learning rate of 0"),
        (decays and until_zero < updates, "schedule.decay_updates",
         f"the learning rate would be 0 after {until_zero} of up to {updates}"
         f" updates; set at least {updates - c.schedule.warmup_updates}, or lower"
         f" config.steps={c.steps}"),
        (c.objective.reset_every and rank, "objective.reset_every",
         "adapters cannot replace the weights of the reference model; set it to 0,"
         " or set config.model.lora.rank=0"),
        (steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]),
         "profile.steps", "must be (first, last) with 1 <= first <= last, or ()"),
        (bool(c.model.path) == bool(c.model.maker), "model.path",
         f"exactly one of this key and config.model.maker={c.model.maker!r} must be"
         " set"),
        (c.reward.overlong_factor and c.reward.overlong_buffer >= shortest,
         "reward.overlong_buffer",
         f"must be less than max_response_tokens={shortest} of the run or of a stage"),
    )  # fmt: skip
    for wrong, key, reason in rules:
        if wrong:
            raise ValueError(f"config.{key}={attrgetter(key)(c)!r}: {reason}")
    for i, limit in enumerate(limits):
        if limit > r.max_response_tokens:
            raise ValueError(
                f"config.curriculum.stages[{i}].max_response_tokens={limit}: must be at"
                f" most config.rollout.max_response_tokens={r.max_response_tokens}"
            )


def settings_without_effect(
    c: RunConfig, *, needs_reference: bool, row_multiple: int = 1
) -> list[str]:
    """Returns messages about settings of a config that have no effect.

    `needs_reference` says whether the loss uses a reference model. `row_multiple` is
    the number of devices over which rows are split.
    """
    d, o = c.dynamic_sampling, c.objective
    clips_ratio = o.function in ("grpo", "dual_clip", "cispo", "gspo")
    only_verifier = c.reward.function.strip() == "verifier"
    filtered = d.filter and filter_on(c) == "correct" and not c.reward.overlong_factor
    stages = c.curriculum.stages
    sizes = {c.rollout.group_size, *(s.group_size or 2 for s in stages)}
    updates = c.steps * updates_per_step(c)
    # Each row but the last holds at least `in_row` completions of the greatest length.
    row, micro_tokens = max(c.batch.row_lengths), c.batch.micro_tokens
    in_row = row // (c.rollout.max_prompt_tokens + c.rollout.max_response_tokens)
    rows = math.ceil(c.batch.prompts_per_update * max(sizes) / in_row / row_multiple)
    most = rows * row_multiple * row
    evaluated, saved = c.eval.every_steps, c.checkpoint.every_steps or c.steps
    # Whether a setting has no effect, and which.
    notes = (
        (clips_ratio and updates_per_step(c) == 1,
         "config.objective.eps_low and eps_high, because a step has only one update"
         " and every ratio is 1"),
        (sizes == {2} and only_verifier and filtered,
         "the choice of 'std', 'mean' or 'batch_std' as config.objective.advantage,"
         " except for the scale of the loss, because with config.rollout.group_size=2"
         " every group that is trained on has one right and one wrong completion"),
        (updates <= c.schedule.warmup_updates,
         f"the full config.schedule.learning_rate={c.schedule.learning_rate!r},"
         f" because the number of updates is at most {updates}; lower"
         f" config.schedule.warmup_updates={c.schedule.warmup_updates}"),
        (micro_tokens >= most + row * row_multiple and not c.rollout.extra_groups,
         f"config.batch.micro_tokens={micro_tokens} above {most}, because an update has"
         " no more positions; the rest is computed as padding, so lower it"),
        (c.data.eval and 0 < evaluated < c.steps and evaluated % saved,
         "evaluations at steps without a checkpoint on which checkpoint is retained"
         f" as the best, because config.eval.every_steps={evaluated} is not a"
         f" multiple of {saved}, the steps between checkpoints"),
    )  # fmt: skip
    lines, default = [note for holds, note in notes if holds], RunConfig()
    begin = 0  # fewest steps before a stage
    for i, stage in enumerate(stages):
        if begin >= c.steps:
            lines.append(
                f"config.curriculum.stages[{i}] ({stage.name!r}), which begins after at"
                f" least {begin} steps, because config.steps={c.steps}"
            )
        rule = stage.advance
        if rule and stage.steps and rule.window >= stage.steps:
            lines.append(
                f"config.curriculum.stages[{i}].advance, because its window of"
                f" {rule.window} steps is not below steps={stage.steps}"
            )
        begin += min(stage.steps or c.steps, rule.window if rule else c.steps)
    # A key, whether its value disables other keys, and these other keys.
    dependencies = (
        ("model.lora.rank", not c.model.lora.rank,
         "model.lora.alpha model.lora.targets model.lora.init_seed"),
        ("objective.kl_penalty", not o.kl_penalty, "objective.kl_estimate"),
        ("dynamic_sampling.filter", not d.filter, "dynamic_sampling.filter_on"),
        ("sampling.policy", c.sampling.policy == "uniform",
         "sampling.explore sampling.half_life"),
        ("reward.overlong_factor", not c.reward.overlong_factor,
         "reward.overlong_buffer"),
        ("schedule.decay", c.schedule.decay == "constant", "schedule.decay_updates"),
        ("rollout.schedule", c.rollout.schedule != "async", "rollout.max_staleness"),
        ("optimizer.function", c.optimizer.function != "adamw",
         "optimizer.b1 optimizer.b2 optimizer.weight_decay optimizer.moments_dtype"),
        ("objective.kl_penalty", not needs_reference,
         "objective.reference objective.reset_every"),
        ("data.train", ":" not in c.data.train.replace("hf://", ""), "data.train_args"),
        ("data.eval", ":" not in str(c.data.eval).replace("hf://", ""),
         "data.eval_args"),
        ("reward.function", only_verifier and not c.eval.reward, "reward.right_from"),
        ("reward.function", "verifier" not in c.reward.function + c.eval.reward,
         "reward.literal"),
        ("objective.advantage", o.advantage == "maxrl", "reward.overlong_factor"),
        ("steps", c.profile.steps[:1] > (c.steps,), "profile.steps"),
        ("model.dtype", c.model.dtype != "float32", "model.matmul_precision"),
        ("rollout.backend", c.rollout.backend == "jax",
         "rollout.vllm.url rollout.vllm.devices rollout.vllm.publish"),
        ("rollout.backend", c.rollout.backend == "vllm",
         "rollout.tensor objective.old_logprobs"),
        ("rollout.vllm.url", c.rollout.backend == "vllm" and c.rollout.vllm.url,
         "rollout.vllm.devices rollout.vllm.gpu_memory_utilization"
         " rollout.vllm.enforce_eager"),
    )  # fmt: skip
    for other, disables, keys in dependencies:
        for key in keys.split() if disables else ():
            value, usual = map(attrgetter(key), (c, default))
            if value != usual:
                reason = f"config.{other}={attrgetter(other)(c)!r}"
                lines.append(f"config.{key}={value!r}, because {reason}")
    return [f"no effect: {line}" for line in lines]


def filter_on(c: RunConfig) -> Literal["correct", "reward"]:
    """Returns `dynamic_sampling.filter_on`, with "auto" resolved.

    "auto" means "correct" if the first term of `reward.function` is the verifier, or if
    `sampling.policy` is not "uniform". Otherwise it means "reward", because rewards may
    then differ although no completion is correct.
    """
    chosen = c.dynamic_sampling.filter_on
    if chosen != "auto":
        return chosen
    judged = _VERIFIER_FIRST.match(c.reward.function)
    return "correct" if judged or c.sampling.policy != "uniform" else "reward"


def updates_per_step(c: RunConfig) -> int:
    b = c.batch
    return b.ppo_epochs * b.prompts_per_step // b.prompts_per_update
