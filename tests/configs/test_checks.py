"""Settings that have no effect are named when a run starts."""

import pytest

from configs import quickstart
from configs.base import from_config
from configs.checks import settings_without_effect


def _lines(needs_reference=False, **changes):
    config = quickstart.get_config()
    config.update_from_flattened_dict({k.replace("__", "."): v for k, v in
                                       changes.items()})  # fmt: skip
    return settings_without_effect(from_config(config), needs_reference=needs_reference)


@pytest.mark.failure(183)
@pytest.mark.failure(192)
@pytest.mark.failure(157)
@pytest.mark.failure(129)
@pytest.mark.failure(95)
@pytest.mark.failure(103)
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch__prompts_per_update": 32},
         "config.objective.eps_low and eps_high, bec"),
        ({"rollout__group_size": 2}, "the choice of 'std', 'mean' or 'batch_std'"),
        ({"objective__kl_estimate": "k1"},
         "config.objective.kl_estimate='k1', because config.objective.kl_penalty=0"),
        ({"objective__reset_every": 5},
         "config.objective.reset_every=5, because config.objective.kl_penalty=0"),
        ({"sampling__explore": 0.1},
         "config.sampling.explore=0.1, because config.sampling.policy='uniform'"),
        ({"optimizer__function": "a:b", "optimizer__b1": 0.5},
         "config.optimizer.b1=0.5, because config.optimizer.function='a:b'"),
        ({"model__lora__targets": "mlp"},
         "config.model.lora.targets='mlp', because config.model.lora.rank=0"),
        ({"steps": 2, "schedule__warmup_updates": 4},
         "the full config.schedule.learning_rate=0.0001, because the number of "),
        ({"profile__steps": (201, 210)},
         "config.profile.steps=(201, 210), because config.steps=200"),
        # 16 prompts x 8 completions of up to 64 tokens, two in a row of 128.
        ({"batch__micro_tokens": 65536},
         "config.batch.micro_tokens=65536 above 8192, because an update has no m"),
        ({"data__train": "a.jsonl"}, "config.data.train_args={'"),
        ({"data__eval": "a.jsonl"}, "config.data.eval_args={'"),
        ({"objective__advantage": "maxrl", "reward__overlong_factor": 0.5,
          "reward__overlong_buffer": 8},
         "config.reward.overlong_factor=0.5, because config.objective.advantage="),
        ({"reward__function": "a:b", "reward__literal": False},
         "config.reward.literal=False, because config.reward.function='a:b'"),
        ({"rollout__backend": "vllm", "objective__old_logprobs": "sampler"},
         "config.objective.old_logprobs='sampler', because config.rollout.backend="),
        ({"rollout__backend": "vllm", "rollout__vllm__url": "http://a:1",
          "rollout__vllm__enforce_eager": True},
         "config.rollout.vllm.enforce_eager=True, because config.rollout.vllm.url="),
        ({"reward__right_from": 0.5}, "config.reward.right_from=0.5, because config."),
        ({"rollout__vllm__url": "http://a:1"},
         "config.rollout.vllm.url='http://a:1', because config.rollout.backend='jax'"),
        ({"curriculum__stages": ({"name": "a", "steps": 150}, {"name": "b", "steps": 60,
          "advance": {"metric": "accuracy", "at_least": 0.9, "window": 50}},
          {"name": "c"})},
         "config.curriculum.stages[2] ('c'), which begins after at least 200 steps,"
         " because config.steps=200"),
        ({"curriculum__stages": ({"name": "a", "steps": 20,
          "advance": {"metric": "accuracy", "at_least": 0.9, "window": 20}},
          {"name": "b"})},
         "config.curriculum.stages[0].advance, because its window of 20 steps is"),
        # Of the steps 10 to 190, only every second has a checkpoint.
        ({"eval__every_steps": 10},
         "evaluations at steps without a checkpoint on which checkpoint is retained"
         " as the best, because config.eval.every_steps=10 is not a multiple of"
         " 20, the steps between checkpoints"),
    ],
)  # fmt: skip
def test_a_setting_without_effect_is_named(changes, line):
    (found,) = _lines(**changes)
    assert found.startswith(f"no effect: {line}")


def test_settings_with_an_effect_are_not():
    assert _lines() == []
    assert _lines(needs_reference=True, objective__reset_every=5) == []
    kl = dict(objective__kl_penalty=0.1, objective__kl_estimate="k1")
    assert _lines(needs_reference=True, **kl) == []
    # Four updates of the same prompts.
    epochs = dict(batch__prompts_per_update=32, batch__ppo_epochs=4)
    assert _lines(**epochs) == []
