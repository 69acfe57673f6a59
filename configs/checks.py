"""Checks of a config that concern several of its keys.

Each raises ValueError with one line that names the keys, their values, and what to do.
"""

import re
from collections.abc import Callable
from typing import Literal

from configs.base import RunConfig

_VERIFIER_FIRST = re.compile(r"\s*[+-]?\s*([\d.eE+-]+\s*\*\s*)?verifier(?![\w.:])")


def check_config(c: RunConfig, *, needs_data: bool = True) -> None:
    """Check everything that neither the model, the data nor the devices decide.

    Args:
      c: the config.
      needs_data: whether problems to train on must be named.
    """
    if needs_data and not c.data.train:
        raise ValueError("config.data.train='': give files or a function")
    _check_rollout(c)
    _check_sampling(c)
    check_overlong(c, c.rollout.max_response_tokens)
    _check_batch(c)
    _check_optimizer(c)
    _check_objective(c)
    _check_profile(c)
    if bool(c.model.path) == bool(c.model.maker):
        raise ValueError(
            f"config.model.path={c.model.path!r}, config.model.maker={c.model.maker!r}:"
            " give one of the two"
        )


# Keys that have no effect under a condition, and the condition in words.
_IDLE: tuple[tuple[str, Callable[[RunConfig, bool], bool], str], ...] = (
    (
        "objective.kl_estimate",
        lambda c, _: not c.objective.kl_penalty,
        "objective.kl_penalty=0",
    ),
    (
        "objective.reference objective.reset_every",
        lambda c, needs_reference: not needs_reference,
        "objective.kl_penalty=0 and the loss names no reference",
    ),
    (
        "dynamic_sampling.filter_on",
        lambda c, _: not c.dynamic_sampling.filter,
        "dynamic_sampling.filter=False",
    ),
    (
        "sampling.explore sampling.half_life",
        lambda c, _: c.sampling.policy == "uniform",
        "sampling.policy='uniform'",
    ),
    (
        "rollout.max_staleness",
        lambda c, _: c.rollout.schedule != "async",
        "rollout.schedule is not 'async'",
    ),
    (
        "reward.overlong_buffer",
        lambda c, _: not c.reward.overlong_factor,
        "reward.overlong_factor=0",
    ),
    (
        "schedule.decay_updates",
        lambda c, _: c.schedule.decay == "constant",
        "schedule.decay='constant'",
    ),
    (
        "optimizer.b1 optimizer.b2 optimizer.weight_decay optimizer.moments_dtype",
        lambda c, _: c.optimizer.function != "adamw",
        "optimizer.function is not 'adamw'",
    ),
)


def settings_without_effect(c: RunConfig, *, needs_reference: bool) -> list[str]:
    """Return a line on each setting of a config that changes nothing.

    Args:
      c: the config.
      needs_reference: whether the objective reads the reference's log-probabilities.
    """
    b, lines = c.batch, []
    if b.ppo_epochs * b.prompts_per_step == b.prompts_per_update:
        lines.append(
            "with one update a step every ratio is 1: config.objective.eps_low and"
            " eps_high clip nothing"
        )
    d = c.dynamic_sampling
    if c.rollout.group_size == 2 and d.filter and filter_on(c) == "correct":
        lines.append(
            "with config.rollout.group_size=2 every retained group has one right and"
            " one wrong completion: advantages 'std', 'mean' and 'batch_std' differ by"
            " a constant factor only"
        )
    default = RunConfig()
    for names, idle, reason in _IDLE:
        for name in names.split() if idle(c, needs_reference) else ():
            section, key = name.split(".")
            value = getattr(getattr(c, section), key)
            if value != getattr(getattr(default, section), key):
                lines.append(f"config.{name}={value!r}: {reason}")
    return [f"no effect: {line}" for line in lines]


def filter_on(c: RunConfig) -> Literal["correct", "reward"]:
    """Return what has to differ in a group that is trained on.

    A reward of the user's may be graded: groups that are all wrong can still differ.
    """
    chosen = c.dynamic_sampling.filter_on
    if chosen != "auto":
        return chosen
    judged = _VERIFIER_FIRST.match(c.reward.function)
    return "correct" if judged or c.sampling.policy != "uniform" else "reward"


def _check_rollout(c: RunConfig) -> None:
    r = c.rollout
    if r.schedule != "sync" and r.backend == "jax":
        raise ValueError(
            f"config.rollout.schedule={r.schedule!r}: the embedded sampler"
            " shares its devices with the update; set rollout.backend='vllm'"
        )
    if r.vllm.publish == "adapter" and not 0 < c.model.lora.rank <= 512:
        raise ValueError(
            f"config.rollout.vllm.publish='adapter': needs config.model.lora.rank from"
            f" 1 to 512, not {c.model.lora.rank}"
        )


def _check_sampling(c: RunConfig) -> None:
    d = c.dynamic_sampling
    if d.carry and c.reward.shuffle:
        raise ValueError(
            "config.reward.shuffle=True: verdicts are dealt among all groups of a"
            " round, and carried groups end one by one; change it, or set"
            " config.dynamic_sampling.carry=False"
        )
    if c.sampling.policy != "uniform" and (not d.filter or d.filter_on == "reward"):
        raise ValueError(
            f"config.sampling.policy={c.sampling.policy!r}: needs"
            " config.dynamic_sampling.filter=True and filter_on='correct', not"
            f" {d.filter} and {d.filter_on!r}"
        )


def _check_objective(c: RunConfig) -> None:
    if c.objective.reset_every and c.model.lora.rank:
        raise ValueError(
            f"config.objective.reset_every={c.objective.reset_every}: adapters cannot"
            " replace the reference, which is their base; set it to 0, or"
            " config.model.lora.rank=0"
        )


def check_overlong(c: RunConfig, max_response_tokens: int) -> None:
    """Reject an overlong buffer that covers the whole response.

    Every completion would be penalized.

    Args:
      c: the config.
      max_response_tokens: of the run, or of a stage.
    """
    buffer = c.reward.overlong_buffer
    if c.reward.overlong_factor and buffer >= max_response_tokens:
        raise ValueError(
            f"config.reward.overlong_buffer={buffer}: must be less than the"
            f" {max_response_tokens} tokens that a completion may have"
        )


def _check_batch(c: RunConfig) -> None:
    b, r = c.batch, c.rollout
    if b.prompts_per_step % b.prompts_per_update:
        raise ValueError(
            f"config.batch.prompts_per_step={b.prompts_per_step}: must be a multiple of"
            f" config.batch.prompts_per_update={b.prompts_per_update}"
        )
    if max(b.row_lengths) < r.max_prompt_tokens + r.max_response_tokens:
        raise ValueError(
            f"config.batch.row_lengths={b.row_lengths}: no row holds"
            f" rollout.max_prompt_tokens={r.max_prompt_tokens} +"
            f" rollout.max_response_tokens={r.max_response_tokens} tokens"
        )


def _check_optimizer(c: RunConfig) -> None:
    if c.optimizer.moments_dtype == "bfloat16" and c.optimizer.b2 > 0.99:
        raise ValueError(
            f"config.optimizer.b2={c.optimizer.b2} with"
            " config.optimizer.moments_dtype='bfloat16': the second moment would stop"
            " moving; use b2 <= 0.99"
        )
    if c.schedule.decay != "constant" and not c.schedule.decay_updates:
        raise ValueError(
            f"config.schedule.decay={c.schedule.decay!r}: give schedule.decay_updates,"
            " the updates from the warm-up's end to a rate of 0"
        )


def _check_profile(c: RunConfig) -> None:
    steps = c.profile.steps
    if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
        raise ValueError(
            f"config.profile.steps={steps}: must be the first and the last step, from"
            " 1, or empty"
        )
