"""Checks of a config that concern several of its keys.

Each raises ValueError with one line that names the keys, their values, and what to do.
"""

from configs.base import RunConfig


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
    _check_profile(c)
    if bool(c.model.path) == bool(c.model.maker):
        raise ValueError(
            f"config.model.path={c.model.path!r}, config.model.maker={c.model.maker!r}:"
            " give one of the two"
        )


def _check_rollout(c: RunConfig) -> None:
    r = c.rollout
    if r.top_p != 1:
        raise ValueError(
            f"config.rollout.top_p={r.top_p}: training needs 1, the trainer"
            " does not renormalize"
        )
    if r.schedule != "sync" and r.backend == "jax":
        raise ValueError(
            f"config.rollout.schedule={r.schedule!r}: the embedded sampler"
            " shares its devices with the update; set rollout.backend='vllm'"
        )


def _check_sampling(c: RunConfig) -> None:
    d = c.dynamic_sampling
    if d.carry and d.max_age < 1:
        raise ValueError(
            f"config.dynamic_sampling.max_age={d.max_age}: a carried group is a step"
            " old; change it, or set config.dynamic_sampling.carry=False"
        )
    if d.carry and c.reward.shuffle:
        raise ValueError(
            "config.reward.shuffle=True: verdicts are dealt among all groups of a"
            " round, and carried groups end one by one; change it, or set"
            " config.dynamic_sampling.carry=False"
        )
    if c.sampling.policy != "uniform" and (not d.filter or d.filter_on != "correct"):
        raise ValueError(
            f"config.sampling.policy={c.sampling.policy!r}: needs"
            " config.dynamic_sampling.filter=True and filter_on='correct', not"
            f" {d.filter} and {d.filter_on!r}"
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
            " the updates from the warm-up's end to the final rate"
        )


def _check_profile(c: RunConfig) -> None:
    steps = c.profile.steps
    if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
        raise ValueError(
            f"config.profile.steps={steps}: must be the first and the last step, from"
            " 1, or empty"
        )
